package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// maxPorts is as many ports as the kernel side compares a connection with.
const maxPorts = 4

// Names of the programs. The kernel side tells of new processes by the first letters of
// these, see is_server_name in bpf/query/query.bpf.c.
var programs = map[string]Engine{
	"postgres":       PostgreSQL,
	"postmaster":     PostgreSQL,
	"edb-postgres":   PostgreSQL,
	"edb-postmaster": PostgreSQL,
	"mysqld":         MySQL,
	"mysqld-debug":   MySQL,
	"mariadbd":       MariaDB,
}

// Arguments of runs that serve no clients: initialising a data directory, printing settings.
var notServing = []string{
	"--boot", "--single", "--check", "--describe-config", "-C", "-V", "--version",
	"--bootstrap", "--initialize", "--initialize-insecure", "--help", "-?",
}

// Scan returns the database servers below a procfs. A process that ends meanwhile is left
// out. Of those in known nothing is read but that they are still there. The error joins what
// could not be read of servers that are there; each of those is returned as far as it is known.
func Scan(root string, known map[ID]Server) ([]Server, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("procfs: %w", err)
	}
	var servers []Server
	var problems []error
	tcp := networks{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		s, err := read(root, pid, known, tcp)
		if err != nil && !gone(err) {
			problems = append(problems, fmt.Errorf("process %d: %w", pid, err))
		}
		if s != nil {
			servers = append(servers, *s)
		}
	}
	return servers, errors.Join(problems...)
}

// gone tells whether an error only says that the process has ended.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errEnded)
}

var errEnded = errors.New("process has ended")

// read returns the server whose main process is pid, or nil if it is none.
func read(root string, pid int, known map[ID]Server, tcp networks) (*Server, error) {
	p := process{root: root, dir: filepath.Join(root, strconv.Itoa(pid))}
	stat, err := p.stat()
	if err != nil {
		return nil, err
	}
	engine, ok := programs[stat.comm]
	if !ok {
		return nil, nil
	}
	if s, ok := known[ID{pid, stat.startTicks}]; ok {
		return &s, nil
	}
	// mysqld may be a link to mariadbd.
	if exe, err := os.Readlink(filepath.Join(p.dir, "exe")); err == nil {
		if e, ok := programs[strings.TrimSuffix(filepath.Base(exe), " (deleted)")]; ok {
			engine = e
		}
	}
	if engine == PostgreSQL && p.isChildOfSame(stat) {
		return nil, nil
	}
	args, err := p.arguments()
	if err != nil {
		return nil, err
	}
	if len(args) == 0 {
		return nil, errEnded
	}
	for _, a := range args[1:] {
		if slices.Contains(notServing, a) {
			return nil, nil
		}
	}
	s := &Server{ID: ID{PID: pid, StartTicks: stat.startTicks}, Engine: engine}
	if engine == PostgreSQL {
		s.Name = clusterName(args)
	}
	// What follows needs more rights, or the server to be further on its way: the server is
	// followed without it.
	return s, errors.Join(p.readPorts(s, tcp), p.readFilesInTime(s), p.readLibrary(s))
}

// clusterName returns the value of PostgreSQL's cluster_name on a command line, or "".
func clusterName(args []string) string {
	name := ""
	for i, a := range args {
		if i > 0 && args[i-1] == "-c" {
			a = "--" + a
		} else if strings.HasPrefix(a, "-c") {
			a = "--" + a[2:]
		}
		key, value, ok := strings.Cut(a, "=")
		if ok && strings.ReplaceAll(key, "-", "_") == "__cluster_name" {
			name = value // the last one counts
		}
	}
	return name
}
