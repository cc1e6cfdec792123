package server

import (
	"fmt"
	"slices"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/foreign"
)

// Engine is a kind of database server, as in the engine label.
type Engine string

// kinds are the engines that are found; each is described in a file of its own.
var kinds = map[Engine]kind{
	PostgreSQL: postgresql,
	MySQL:      mysql,
	MariaDB:    mariadb,
	Redis:      redis,
}

// kind is all that is known of one engine's servers. What is nil or empty the engine does not have.
type kind struct {
	// protocol is what the kernel side calls its wire protocol.
	protocol bpf.QueryEngine
	// commands are the values of the label command, by their numbers on the kernel side.
	commands Commands
	// programs are the names of the server's program.
	programs []string
	// notServing are arguments of runs that serve no clients: initialising a data directory, printing settings.
	notServing []string
	// title is what begins the command lines of a server's other processes, which write there what they do, and none of its main process's.
	title string
	// name returns what a server calls itself, by its command line (and data is nil) or by its files.
	name func(p process, s *Server, data *foreign.Dir) string
	// marker is a file that is in every data directory; without one, any working directory but the root is one.
	marker string
	// version returns the version that the data directory tells of, or "".
	version func(p process, data *foreign.Dir) string
	// log returns where the log is that a commit waits for, or nothing if that is in the data directory.
	log func(p process, s *Server, data *foreign.Dir) (Storage, error)
	// tablespaces returns where tables are that are not in the data directory.
	tablespaces func(p process, s *Server, data *foreign.Dir) ([]Storage, error)
	// isOther tells of a port that it is not for clients, or that these speak another protocol there; ports are all of them.
	isOther func(port uint16, ports []uint16) bool
	// waitEvent is the program's variable in which its processes keep where they say what they wait for.
	waitEvent string
	// hostname tells that, to a client, a server in a pod calls itself by its host's name.
	hostname bool
	// servesMany tells that one thread serves many connections at once.
	servesMany bool
	// tls tells that the encrypted connections can be read by way of the TLS library.
	tls bool
}

// Commands are the values of an engine's label command, by their numbers on the kernel side; an empty one is not in use.
type Commands [bpf.QueryCommandCOMMANDS]string

// sql are those of engines whose statements are SQL.
var sql = Commands{
	bpf.QueryCommandOTHER: "other", bpf.QuerySqlCommandSELECT: "select", bpf.QuerySqlCommandINSERT: "insert",
	bpf.QuerySqlCommandUPDATE: "update", bpf.QuerySqlCommandDELETE: "delete", bpf.QuerySqlCommandBEGIN: "begin",
	bpf.QuerySqlCommandCOMMIT: "commit", bpf.QuerySqlCommandROLLBACK: "rollback", bpf.QuerySqlCommandCOPY: "copy",
}

// programs are the engines by the names of their servers' programs.
var programs = func() map[string]Engine {
	all := map[string]Engine{}
	for engine, k := range kinds {
		for _, name := range k.programs {
			all[name] = engine
		}
	}
	return all
}()

// Programs returns the names of all servers' programs.
func Programs() []string {
	var names []string
	for name := range programs {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Protocol is what the kernel side calls an engine's wire protocol.
func (e Engine) Protocol() bpf.QueryEngine { return kinds[e].protocol }

// Commands returns the values of an engine's label command; SQL's of what is no engine.
func (e Engine) Commands() Commands {
	if k, ok := kinds[e]; ok {
		return k.commands
	}
	return sql
}

// SpeaksSQL tells whether an engine's commands are SQL's.
func (e Engine) SpeaksSQL() bool { return e.Commands() == sql }

// WaitEvent is the variable of an engine's program in which its processes keep where they say what they wait for, or "".
func (e Engine) WaitEvent() string { return kinds[e].waitEvent }

// ServesMany tells whether a thread of an engine's serves many connections at once, so that its time is not one statement's.
func (e Engine) ServesMany() bool { return kinds[e].servesMany }

// CallsItselfByHost tells whether, to a client, a server in a pod calls itself by its host's name.
func (e Engine) CallsItselfByHost() bool { return kinds[e].hostname }

// DefaultName is what a server is called that does not name itself: its engine and data directory, told apart from those of
// the same path elsewhere. One whose data directory is not known is called by its engine and port, or only by its engine before
// it listens or when it does so on no TCP port.
func (s Server) DefaultName() string {
	switch {
	case s.Owned && s.Apart && s.DataID != "":
		return fmt.Sprintf("%s:%s-%s", s.Engine, s.DataDirectory, s.ShortDataID())
	case s.Owned && !s.Apart:
		return fmt.Sprintf("%s:%s", s.Engine, s.DataDirectory)
	case len(s.Ports) == 0:
		return string(s.Engine)
	}
	return fmt.Sprintf("%s-%d", s.Engine, s.Ports[0])
}
