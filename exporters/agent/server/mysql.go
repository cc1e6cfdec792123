package server

import (
	"encoding/json"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// The engines of the servers that speak MySQL's protocol.
const (
	MySQL   DBSystem = "mysql"
	MariaDB DBSystem = "mariadb"
)

// mysqlPorts are the usual ones that are not for clients: group replication's, and Galera's for its group and for a node's incremental state.
var mysqlPorts = []uint16{33061, 4567, 4568}

// xPort is the usual one of the X protocol.
const xPort = 33060

var (
	mysql   = mysqlNamed(3306, "mysqld", "mysqld-debug")
	mariadb = mysqlNamed(0, "mariadbd")
)

// mysqlNamed describes servers whose programs have these names, and whose usual port counts as theirs.
func mysqlNamed(port uint16, programs ...string) kind {
	return kind{
		protocol:   bpf.QueryEngineMYSQL,
		commands:   sql,
		programs:   programs,
		port:       port,
		notServing: mysqlNotServing,
		// The system's tables, which both engines have in the data directory; InnoDB's own files may be elsewhere, all of them (Vitess).
		markers: []string{"ibdata1", "mysql.ibd", "auto.cnf", "aria_log_control", "mysql"},
		variant: mysqlVariant,
		version: mysqlVersion,
		// InnoDB's redo log is the file that the server has open.
		log: func(p process, _ *Server, _ *untrusted.Dir) (Storage, error) {
			return p.openLog(func(name string) bool {
				return strings.HasPrefix(name, "ib_logfile") || strings.HasPrefix(name, "#ib_redo")
			})
		},
		binlog:         mysqlBinlog,
		tablespaces:    mysqlTablespaces,
		isOther:        func(port uint16, _ []uint16) bool { return slices.Contains(mysqlPorts, port) },
		internal:       mysqlInternal,
		hostname:       true,
		syncsForOthers: true,
		tls:            true,
	}
}

// mysqlRuns are options of runs that serve nobody.
var mysqlRuns = []string{"bootstrap", "initialize", "initialize-insecure", "validate-config", "wsrep-recover", "version", "help", "print-defaults"}

// mysqlNotServing knows runs that initialise, check or recover a data directory, or print something.
func mysqlNotServing(args []string) bool {
	on := map[string]bool{}
	for _, a := range args[1:] {
		if slices.Contains([]string{"-V", "-?", "-I"}, a) {
			return true
		}
		name, value, ok := mysqlOption(a)
		if !ok {
			continue
		}
		for _, run := range mysqlRuns {
			// As all programs of MySQL's take them, an option may be cut short as long as no other one begins like it.
			const short = 7
			if name == run || len(name) >= short && strings.HasPrefix(run, name) {
				on[run] = value == "" || slices.Contains([]string{"1", "on", "true"}, strings.ToLower(value))
			}
		}
	}
	for _, yes := range on {
		if yes {
			return true
		}
	}
	return false
}

// mysqlOption takes an option apart, --loose_NAME=VALUE: the name with hyphens for all underscores. The value of one that is skipped is 0.
func mysqlOption(text string) (name, value string, ok bool) {
	if text, ok = strings.CutPrefix(text, "--"); !ok || text == "" {
		return "", "", false
	}
	name, value, _ = strings.Cut(text, "=")
	name = strings.ReplaceAll(strings.TrimSpace(name), "_", "-")
	name = strings.TrimPrefix(name, "loose-")
	for _, no := range []string{"skip-", "disable-"} {
		if rest, is := strings.CutPrefix(name, no); is {
			name, value = rest, "0"
		}
	}
	name = strings.TrimPrefix(name, "enable-")
	return name, strings.Trim(strings.TrimSpace(value), `"'`), true
}

// mysqlVersionFiles are the files of the data directory that have the version at their beginning.
var mysqlVersionFiles = []string{"mariadb_upgrade_info", "mysql_upgrade_info"}

// maxHistory bounds MySQL's history of upgrades, a line of some hundred bytes for each.
const maxHistory = 64 << 10

// mysqlVersion returns the version by the data directory's files. MySQL 8.4 and later keep the history of their versions.
func mysqlVersion(p process, data *untrusted.Dir) string {
	var history struct {
		Upgrades []struct {
			Version string `json:"version"`
		} `json:"upgrade_history"`
	}
	text := p.headOf(data, "mysql_upgrade_history", maxHistory)
	if json.Unmarshal([]byte(text), &history) == nil {
		if n := len(history.Upgrades); n > 0 {
			if v := untrusted.Version(history.Upgrades[n-1].Version); v != "" {
				return v
			}
		}
	}
	return p.versionIn(data, mysqlVersionFiles...)
}

// mysqlVariant distinguishes MariaDB from MySQL, whose programs have one name before MariaDB 10.4 and in some packages of later ones: MariaDB writes its name behind
// its version, and has a log of Aria's tables.
func mysqlVariant(p process, s *Server, data *untrusted.Dir) DBSystem {
	if s.DBSystem != MySQL {
		return s.DBSystem
	}
	for _, name := range mysqlVersionFiles {
		if text := p.headOf(data, name, maxVersionFile); untrusted.Version(text) != "" && strings.Contains(text, "-MariaDB") {
			return MariaDB
		}
	}
	if _, err := data.Stat("aria_log_control", untrusted.NoLinks); err == nil {
		return MariaDB
	}
	return MySQL
}

// binlogFile is what a binary log's files are called: NAME.000001.
var binlogFile = regexp.MustCompile(`^(.+)\.[0-9]{6,}$`)

// mysqlBinlog returns where the binary log is: the open file with a number beside whose name an index is open. A replica's relay
// log has one, too; the engines and their images have "relay" in its name, unless an option renames it.
func mysqlBinlog(p process) (log Storage, err error) {
	type file struct{ link, target string }
	logs, indexes := map[string]file{}, []string{}
	err = p.openFiles(func(link, target string) bool {
		name := filepath.Base(target)
		if strings.HasSuffix(name, ".index") {
			indexes = append(indexes, name)
		} else if m := binlogFile.FindStringSubmatch(name); m != nil && !strings.Contains(name, "relay") {
			logs[m[1]] = file{link, target}
		}
		return true
	})
	for name, f := range logs {
		if slices.ContainsFunc(indexes, func(index string) bool { return strings.HasPrefix(index, name+".") }) {
			log, _ = p.openFile(f.link, f.target)
			break
		}
	}
	return log, err
}

// innodbFile is what InnoDB calls its tablespaces.
var innodbFile = regexp.MustCompile(`(?:^ibdata[0-9]+|^undo[_0-9][^/]*|\.ibd|\.ibu)$`)

// mysqlTablespaces returns where InnoDB's tablespaces are that the server has open and that are not below its data directory.
func mysqlTablespaces(p process, s *Server, _ *untrusted.Dir) (all []Storage, err error) {
	within := strings.TrimSuffix(s.DataPath, "/") + "/"
	err = p.openFiles(func(link, target string) bool {
		target = strings.TrimSuffix(target, " (deleted)")
		if strings.HasPrefix(target, within) || !innodbFile.MatchString(filepath.Base(target)) {
			return true
		}
		room := true
		if at, ok := p.openFile(link, target); ok {
			all, room = addPlace(all, at)
		}
		return room
	})
	return all, err
}

// mysqlInternal returns the ports that are not for clients by what the server was started with: its arguments and option files. Those of the X protocol
// are not read.
func mysqlInternal(p process, s *Server, data *untrusted.Dir) (ports []uint16) {
	o := options{process: p}
	if data != nil { // else nothing may be read that can hang
		o.readFiles()
	}
	for _, a := range p.args {
		if name, value, ok := mysqlOption(a); ok {
			o.set(name, value)
		}
	}
	add := func(ports []uint16, text string) []uint16 {
		if port, err := strconv.ParseUint(text, 10, 16); err == nil && port != 0 {
			return append(ports, uint16(port))
		}
		return ports
	}
	s.UnsupportedPorts = union(s.UnsupportedPorts, add([]uint16{xPort}, o.value["mysqlx-port"]))
	if _, port, err := net.SplitHostPort(o.value["group-replication-local-address"]); err == nil {
		ports = add(ports, port)
	}
	for _, m := range galeraPort.FindAllStringSubmatch(o.value["wsrep-provider-options"], -1) {
		ports = add(ports, m[1])
	}
	return ports
}

// galeraPort is where Galera's options name a port of the group's: gmcast.listen_addr, base_port and ist.recv_addr.
var galeraPort = regexp.MustCompile(`(?:gmcast\.listen_addr\s*=\s*[^;]*:|base_port\s*=\s*|ist\.recv_(?:addr|bind)\s*=\s*[^;]*:)([0-9]{1,5})\s*(?:;|$)`)

// options are settings of MySQL's that matter here.
type options struct {
	process
	value map[string]string
	files int
}

// set takes over a setting that matters: of several the last one counts.
func (o *options) set(name, value string) {
	if o.value == nil {
		o.value = map[string]string{}
	}
	if slices.Contains([]string{"mysqlx-port", "group-replication-local-address", "wsrep-provider-options"}, name) && len(value) <= maxConfigValue {
		o.value[name] = value
	}
}

// readFiles reads the option files that the server reads, within its own root. One that cannot be read, or that the server may not, is left out.
func (o *options) readFiles() {
	files := []string{"/etc/my.cnf", "/etc/mysql/my.cnf", "/usr/etc/my.cnf"}
	for _, a := range o.args {
		switch name, value, _ := mysqlOption(a); name {
		case "no-defaults":
			return
		case "defaults-file":
			files = []string{value}
		case "defaults-extra-file":
			files = append(files, value)
		}
	}
	root, err := untrusted.Root(o.root, o.pid)
	if err != nil {
		return
	}
	defer root.Close()
	for _, file := range files {
		o.readFile(root, file, 0)
	}
}

// readFile reads an option file and those that it includes.
func (o *options) readFile(root *untrusted.Dir, path string, depth int) {
	if o.files++; o.files > maxConfigFiles || depth > maxConfigDepth || !filepath.IsAbs(path) {
		return
	}
	f, stat, err := root.Open(path, untrusted.InRoot)
	if err != nil {
		return
	}
	defer f.Close()
	const othersRead = 0o004
	if stat.Uid != o.user && (stat.Uid != 0 || stat.Mode&othersRead == 0) {
		return
	}
	text, err := untrusted.ReadAll(f, maxConfig)
	if err != nil {
		return
	}
	server := false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		folder, all := strings.CutPrefix(line, "!includedir ")
		file, one := strings.CutPrefix(line, "!include ")
		switch {
		case strings.HasPrefix(line, "["):
			group, _, _ := strings.Cut(line[1:], "]")
			server = group == "server" || group == "galera" || strings.HasPrefix(group, "mysqld") || strings.HasPrefix(group, "mariadb")
		case all:
			names, err := root.Names(strings.TrimSpace(folder), untrusted.InRoot, 10*maxConfigFiles)
			if err != nil {
				continue
			}
			slices.Sort(names)
			for _, name := range names {
				if strings.HasSuffix(name, ".cnf") {
					o.readFile(root, filepath.Join(strings.TrimSpace(folder), name), depth+1)
				}
			}
		case one:
			o.readFile(root, strings.TrimSpace(file), depth+1)
		case server && line != "" && line[0] != '#' && line[0] != ';':
			if name, value, ok := mysqlOption("--" + line); ok {
				o.set(name, value)
			}
		}
	}
}
