package server

import (
	"fmt"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// DBSystem is a kind of database server, as in the label db_system.
type DBSystem string

// kinds are the engines that are found; each is described in a file of its own.
var kinds = map[DBSystem]kind{
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
	// port is the one that servers listen on unless they are configured otherwise; 0 if another engine has it, too.
	port uint16
	// notServing reports that the run of a command line serves no clients: it initialises a data directory, prints
	// settings, or is no database.
	notServing func(args []string) bool
	// title is what begins the command lines of a server's other processes, which write there what they do, and none of
	// its main process's.
	title string
	// name returns what a server calls itself, by its command line (and data is nil) or by its files.
	name func(p process, s *Server, data *untrusted.Dir) string
	// markers are files and folders one of which is in every data directory; without any, each working directory but
	// the root is one.
	markers []string
	// variant returns the engine of whose data directory it is, where several have the same programs.
	variant func(p process, s *Server, data *untrusted.Dir) DBSystem
	// version returns the version that the data directory has, or "".
	version func(p process, data *untrusted.Dir) string
	// log returns where the log is that a commit waits for, or nothing if that is in the data directory.
	log func(p process, s *Server, data *untrusted.Dir) (Storage, error)
	// binlog returns where another log is that a commit waits for, or nothing if there is none.
	binlog func(p process) (Storage, error)
	// tablespaces returns where tables are that are not in the data directory.
	tablespaces func(p process, s *Server, data *untrusted.Dir) ([]Storage, error)
	// isOther reports whether a port is not for clients; ports are all of them.
	isOther func(port uint16, ports []uint16) bool
	// internal returns further ports that are not for clients, by the server's settings, and adds to the server's
	// UnsupportedPorts. data is nil as long as its data directory is not known.
	internal func(p process, s *Server, data *untrusted.Dir) []uint16
	// waitEvent is the name of the program's variable that holds, in each of its processes, the pointer to where the
	// process keeps its wait event.
	waitEvent string
	// status is the name of the program's variable that holds, in each of its processes, the pointer to the process's
	// status. statusSizes are the status's sizes in bytes, by version, of the versions whose layout is known.
	status      string
	statusSizes map[string]uint32
	// hostname is true if, to a client, a server in a pod calls itself by its host's name.
	hostname bool
	// syncsForOthers is true if its threads flush the log for one another.
	syncsForOthers bool
	// tls is true if the encrypted connections can be read by way of the TLS library.
	tls bool
}

// Commands are the values of an engine's label command, by their numbers on the kernel side; an empty one is not in
// use.
type Commands [bpf.QueryCommandCOMMANDS]string

// sql are those of engines whose statements are SQL.
var sql = Commands{
	bpf.QueryCommandOTHER: "other", bpf.QuerySqlCommandSELECT: "select", bpf.QuerySqlCommandINSERT: "insert",
	bpf.QuerySqlCommandUPDATE: "update", bpf.QuerySqlCommandDELETE: "delete", bpf.QuerySqlCommandBEGIN: "begin",
	bpf.QuerySqlCommandCOMMIT: "commit", bpf.QuerySqlCommandROLLBACK: "rollback", bpf.QuerySqlCommandCOPY: "copy",
}

// Protocol is what the kernel side calls an engine's wire protocol.
func (e DBSystem) Protocol() bpf.QueryEngine { return kinds[e].protocol }

// Commands returns the values of an engine's label command; SQL's of what is no engine.
func (e DBSystem) Commands() Commands {
	if k, ok := kinds[e]; ok {
		return k.commands
	}
	return sql
}

// SpeaksSQL reports whether an engine's commands are SQL's.
func (e DBSystem) SpeaksSQL() bool { return e.Commands() == sql }

// WaitEvent returns the name of the variable of an engine's program that holds, in each of its processes, the pointer
// to where the process keeps its wait event; "" if there is none.
func (e DBSystem) WaitEvent() string { return kinds[e].waitEvent }

// Status returns the name of the variable of an engine's program that holds, in each of its processes, the pointer to
// the process's status in shared memory; "" if there is none.
func (e DBSystem) Status() string { return kinds[e].status }

// StatusSize is how many bytes a process's status has in the server's shared memory; 0 if its version's layout is not
// known.
func (s Server) StatusSize() uint32 { return kinds[s.DBSystem].statusSizes[s.Version] }

// SyncsForOthers reports whether an engine's threads flush its log for one another, and wait for that.
func (e DBSystem) SyncsForOthers() bool { return kinds[e].syncsForOthers }

// CallsItselfByHost reports whether, to a client, a server in a pod calls itself by its host's name.
func (e DBSystem) CallsItselfByHost() bool { return kinds[e].hostname }

// DefaultName is what a server is called that does not name itself: its engine and data directory, distinguished from
// those of the same path elsewhere. One whose data directory is not known is called by its engine and port, or only by
// its engine before it listens or when it does so on no TCP port.
func (s Server) DefaultName() string {
	switch {
	case s.Owned && s.Apart && s.DataID != "":
		return fmt.Sprintf("%s:%s-%s", s.DBSystem, s.DataDirectory, s.ShortDataID())
	case s.Owned && !s.Apart:
		return fmt.Sprintf("%s:%s", s.DBSystem, s.DataDirectory)
	case len(s.Ports) == 0:
		return string(s.DBSystem)
	}
	return fmt.Sprintf("%s-%d", s.DBSystem, s.Ports[0])
}
