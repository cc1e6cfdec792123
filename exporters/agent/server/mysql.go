package server

import (
	"strings"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/foreign"
)

// The engines of the servers that speak MySQL's protocol.
const (
	MySQL   Engine = "mysql"
	MariaDB Engine = "mariadb"
)

// xPluginPort is the usual port of MySQL's X plugin, whose protocol is another one.
const xPluginPort = 33060

var (
	mysql   = mysqlNamed("mysqld", "mysqld-debug")
	mariadb = mysqlNamed("mariadbd")
)

// mysqlNamed describes servers whose programs have these names.
func mysqlNamed(programs ...string) kind {
	return kind{
		protocol:   bpf.QueryEngineMYSQL,
		commands:   sql,
		programs:   programs,
		notServing: []string{"--bootstrap", "--initialize", "--initialize-insecure", "-V", "--version", "--help", "-?"},
		marker:     "ibdata1",
		version: func(p process, data *foreign.Dir) string {
			return p.versionIn(data, "mariadb_upgrade_info", "mysql_upgrade_info")
		},
		// InnoDB's redo log is the file that the server has open.
		log: func(p process, _ *Server, _ *foreign.Dir) (Storage, error) {
			return p.openLog(func(name string) bool {
				return strings.HasPrefix(name, "ib_logfile") || strings.HasPrefix(name, "#ib_redo")
			})
		},
		isOther:  func(port uint16, _ []uint16) bool { return port == xPluginPort },
		hostname: true,
		tls:      true,
	}
}
