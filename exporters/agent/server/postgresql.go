package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// PostgreSQL is the engine of PostgreSQL's servers, and of EDB's.
const PostgreSQL DBSystem = "postgresql"

var postgresql = kind{
	protocol:    bpf.QueryEnginePOSTGRESQL,
	commands:    sql,
	programs:    []string{"postgres", "postmaster", "edb-postgres", "edb-postmaster"},
	port:        5432,
	notServing:  postgresNotServing,
	title:       "postgres: ",
	name:        clusterName,
	markers:     []string{"PG_VERSION"},
	version:     func(p process, data *untrusted.Dir) string { return p.versionIn(data, "PG_VERSION") }, // the major one
	log:         postgresLog,
	tablespaces: postgresTablespaces,
	waitEvent:   WaitEventVariable,
	status:      "MyBEEntry",
	// The size of PgBackendStatus on machines of 64 bits, which the programs check.
	statusSizes: map[string]uint32{"14": 432, "15": 432, "16": 432, "17": 432, "18": 440, "19": 440},
	tls:         true,
}

// postgresNotServing knows PostgreSQL's other runs by its first argument and by -C, which prints a setting.
func postgresNotServing(args []string) bool {
	for i, a := range args[1:] {
		switch {
		case i == 0 && slices.Contains([]string{"--boot", "--single", "--check", "--describe-config", "-V", "--version", "--help", "-?"}, a):
			return true
		case strings.HasPrefix(a, "-C"):
			return true
		}
	}
	return false
}

// clusterName returns the setting cluster_name.
func clusterName(p process, s *Server, data *untrusted.Dir) string {
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

// postgresLog returns where pg_wal is, or pg_xlog up to version 9.6, if that is elsewhere.
func postgresLog(p process, s *Server, data *untrusted.Dir) (Storage, error) {
	log, elsewhere, err := p.linked(s, data, "pg_wal")
	if err == nil && !elsewhere {
		log, _, err = p.linked(s, data, "pg_xlog")
	}
	return log, err
}

// postgresTablespaces returns where the tablespaces are: what is in pg_tblspc are links by the tablespaces' numbers, or mounts.
// One that cannot be read is left out, and is an error.
func postgresTablespaces(p process, s *Server, data *untrusted.Dir) (all []Storage, err error) {
	names, err := data.Names("pg_tblspc", untrusted.NoLinks, maxLinks)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	slices.Sort(names)
	problems := []error{err}
	for _, name := range names {
		one, ok, err := p.linked(s, data, filepath.Join("pg_tblspc", name))
		if err != nil && !gone(err) && len(problems) < maxProblems {
			problems = append(problems, fmt.Errorf("%s: %w", untrusted.Path(name), err))
		}
		if err != nil || !ok {
			continue
		}
		var room bool
		if all, room = addPlace(all, one); !room {
			break
		}
	}
	return all, errors.Join(problems...)
}
