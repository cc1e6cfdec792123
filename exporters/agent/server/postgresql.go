package server

import (
	"fmt"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/foreign"
)

// PostgreSQL is the engine of PostgreSQL's servers, and of EDB's.
const PostgreSQL Engine = "postgresql"

var postgresql = kind{
	protocol:   bpf.QueryEnginePOSTGRESQL,
	commands:   sql,
	programs:   []string{"postgres", "postmaster", "edb-postgres", "edb-postmaster"},
	notServing: []string{"--boot", "--single", "--check", "--describe-config", "-C", "-V", "--version", "--help", "-?"},
	title:      "postgres: ",
	name:       clusterName,
	marker:     "PG_VERSION",
	version:    func(p process, data *foreign.Dir) string { return p.versionIn(data, "PG_VERSION") }, // the major one
	log:        postgresLog,
	waitEvent:  WaitEventVariable,
	tls:        true,
}

// clusterName returns the setting cluster_name.
func clusterName(p process, s *Server, data *foreign.Dir) string {
	if data == nil {
		return setting(p.args, nameSetting)
	}
	return p.configuredName(data, s)
}

// setting returns the value of one of PostgreSQL's settings on a command line, or "".
func setting(args []string, name string) string {
	found := ""
	for i, a := range args {
		if i > 0 && args[i-1] == "-c" {
			a = "--" + a
		} else if strings.HasPrefix(a, "-c") {
			a = "--" + a[2:]
		}
		key, value, ok := strings.Cut(a, "=")
		if key = strings.ReplaceAll(key, "-", "_"); ok && strings.EqualFold(key, "__"+name) {
			found = value // the last one counts
		}
	}
	return found
}

// postgresLog returns the device under pg_wal, which may be a link to another volume. The link
// is the server's own; it must lead to a folder of the server's, so that it tells nothing of
// others.
func postgresLog(p process, data *foreign.Dir) (device, source string, err error) {
	target, err := data.Readlink("pg_wal")
	if err != nil {
		return "", "", nil // a plain folder
	}
	from, how := data, foreign.NoSymlinks
	if filepath.IsAbs(target) {
		// The path is one of the server's file system view, and so are links in it.
		root, err := foreign.Root(p.root, p.pid)
		if err != nil {
			return "", "", err
		}
		defer root.Close()
		from, how = root, foreign.InRoot
	}
	stat, err := from.Stat(target, how)
	if err != nil {
		return "", "", err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || stat.Uid != p.user {
		return "", "", fmt.Errorf("%s: not a folder of the server's user", foreign.Path(target))
	}
	device, source = p.deviceOf(stat)
	return device, source, nil
}
