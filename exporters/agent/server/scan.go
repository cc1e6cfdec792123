package server

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// Scanner finds the database servers below a procfs.
type Scanner struct {
	procfs string
	calls  *untrusted.Calls
	limit  *untrusted.Calls
	// Programs are the names by which servers are found.
	Programs Programs
	// statErrors counts the processes whose /proc/PID/stat the latest Candidates could not read or parse.
	statErrors atomic.Int64
}

// StatErrors returns how many processes the latest Candidates left out because /proc/PID/stat could not be read or
// parsed. Processes that had ended do not count.
func (s *Scanner) StatErrors() int { return int(s.statErrors.Load()) }

// NewScanner returns a Scanner whose calls that may hang are made by calls.
func NewScanner(procfs string, calls *untrusted.Calls) *Scanner {
	return &Scanner{procfs: procfs, calls: calls, limit: newScanLimit()}
}

// Candidate is a process with a server's name that is no part of another one.
type Candidate struct {
	ID
	DBSystem DBSystem
}

// Candidates returns those among all processes, in the order in which they began. It reads
// nothing that may hang. The error joins what could not be read.
func (s *Scanner) Candidates() ([]Candidate, error) {
	pids, err := untrusted.Processes(s.procfs)
	if err != nil {
		return nil, err
	}
	var problems []error
	var statErrors int64
	found, parents := map[int]stat{}, map[int]int{}
	for _, pid := range pids {
		st, err := newProcess(s.procfs, pid).stat()
		if err != nil {
			if !gone(err) {
				statErrors++
				if len(problems) < maxProblems {
					problems = append(problems, fmt.Errorf("process %d: %w", pid, err))
				}
			}
			continue
		}
		parents[pid] = st.parent
		if _, ok := s.Programs.Of(st.comm); ok {
			found[pid] = st
		}
	}
	s.statErrors.Store(statErrors)
	var candidates []Candidate
	scripts := map[int]bool{} // whether a process is a script, by its number
	of := func(pid int) (DBSystem, int) {
		engine, _ := s.Programs.Of(found[pid].comm)
		return engine, parents[pid]
	}
	for pid, st := range found {
		engine, _ := s.Programs.Of(st.comm)
		if s.partOf(scripts, pid, st.parent, engine, of) {
			continue
		}
		candidates = append(candidates, Candidate{ID{pid, st.startTicks}, engine})
	}
	candidates = slices.DeleteFunc(candidates, func(c Candidate) bool { return scripts[c.PID] })
	slices.SortFunc(candidates, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(a.StartTicks, b.StartTicks), cmp.Compare(a.PID, b.PID))
	})
	return candidates, errors.Join(problems...)
}

// maxProblems bounds how many errors one scan reports.
const maxProblems = 20

// Candidate reports whether one process is a Candidate.
func (s *Scanner) Candidate(pid int) (Candidate, bool) {
	st, err := newProcess(s.procfs, pid).stat()
	if err != nil {
		return Candidate{}, false
	}
	engine, ok := s.Programs.Of(st.comm)
	c := Candidate{ID{pid, st.startTicks}, engine}
	if !ok {
		return c, false
	}
	of := func(pid int) (DBSystem, int) {
		st, _ := newProcess(s.procfs, pid).stat() // if it has ended, it is none
		engine, _ := s.Programs.Of(st.comm)
		return engine, st.parent
	}
	return c, !s.partOf(map[int]bool{}, pid, st.parent, engine, of) && !s.startedServer(pid, engine)
}

// maxAncestors bounds how many ancestors of a process are followed.
const maxAncestors = 8

// partOf reports whether a process is a part of a server of its engine, which is its parent or, in the same cgroup, an
// ancestor with other programs between them: a Galera node that copies another one's data runs a second mysqld for a
// while, by a script. The search begins at ancestor, the parent. of returns which engine a process has the name of, and
// its parent.
func (s *Scanner) partOf(scripts map[int]bool, pid, ancestor int, engine DBSystem, of func(pid int) (DBSystem, int)) bool {
	for depth := range maxAncestors {
		if ancestor <= 1 {
			return false
		}
		other, next := of(ancestor)
		if other == engine && !s.script(scripts, ancestor, pid) {
			group := newProcess(s.procfs, pid).group()
			return depth == 0 || group != "" && group == newProcess(s.procfs, ancestor).group()
		}
		ancestor = next
	}
	return false
}

// script reports whether a parent of a server's process, which has a server's name, too, is none itself but a script of
// that name that has started the server. Otherwise the process is one of the server's children, which serve its clients
// or save its data. What is known is in scripts.
func (s *Scanner) script(scripts map[int]bool, parent, child int) bool {
	is, known := scripts[parent]
	if !known {
		exe, err := os.Readlink(filepath.Join(newProcess(s.procfs, parent).dir, "exe"))
		if err == nil {
			_, server := s.Programs.OfFile(exe)
			own, _ := os.Readlink(filepath.Join(newProcess(s.procfs, child).dir, "exe"))
			is = !server && own != "" && own != exe
		}
		scripts[parent] = is
	}
	return is
}

// startedServer reports whether a process is a script that has started a server of its own name.
func (s *Scanner) startedServer(pid int, engine DBSystem) bool {
	p := newProcess(s.procfs, pid)
	exe, err := os.Readlink(filepath.Join(p.dir, "exe"))
	if err != nil {
		return false
	}
	if _, server := s.Programs.OfFile(exe); server {
		return false
	}
	text, err := untrusted.ReadProc(filepath.Join(p.dir, "task", strconv.Itoa(pid), "children"), maxStat)
	if err != nil {
		return false
	}
	for _, field := range strings.Fields(string(text)) {
		child, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		st, err := newProcess(s.procfs, child).stat()
		if err != nil {
			continue
		}
		if e, ok := s.Programs.Of(st.comm); ok && e == engine && s.script(map[int]bool{}, pid, child) {
			return true
		}
	}
	return false
}

// ScanFunc returns a function that scans candidates; it may be called from several goroutines. What they share, such
// as the ports of a network namespace, is read once by each ScanFunc. The function returns nil for a process that is no
// server, or has ended, and an error that untrusted.Unanswered recognises for one that is left for another time, as too
// many of its owner's are scanned.
func (s *Scanner) ScanFunc() func(Candidate) (*Server, error) {
	tcp := newNetworks(s.calls)
	return func(c Candidate) (*Server, error) {
		found, err := s.scanCandidate(c, tcp)
		if err = unlessGone(err); err != nil {
			err = fmt.Errorf("process %d: %w", c.PID, err)
		}
		return found, err
	}
}

// scanCandidate returns the server whose main process is a candidate, or nil if it is none. What identifies its owner
// hangs with nothing of the process's.
func (s *Scanner) scanCandidate(c Candidate, tcp *networks) (*Server, error) {
	p := newProcess(s.procfs, c.PID)
	var err error
	if p.user, err = p.effectiveUser(); err != nil {
		return nil, err
	}
	server := &Server{ID: c.ID, DBSystem: c.DBSystem, User: p.user, Group: p.group()}
	over, err := s.limit.Enter(server.Owner(), "scan")
	if err != nil {
		return nil, err
	}
	defer over()
	return s.readServer(p, server, tcp)
}

// readServer adds what is read of a server; it returns nil if it is none.
func (s *Scanner) readServer(p process, server *Server, tcp *networks) (*Server, error) {
	// mysqld may be a link to mariadbd.
	if exe, err := os.Readlink(filepath.Join(p.dir, "exe")); err == nil {
		server.Program = exe
		if e, ok := s.Programs.OfFile(exe); ok {
			server.DBSystem = e
		}
	}
	args, slow := untrusted.Call(s.calls, server.Owner(), fmt.Sprintf("command line of process %d", server.PID), p.arguments)
	switch {
	case untrusted.Unanswered(slow):
		// Its memory hangs. It is a server if it listens; only its name is not known.
		server.NoName = kinds[server.DBSystem].name != nil
	case slow != nil:
		return nil, slow
	case len(args) == 0:
		return nil, errEnded
	default:
		k := kinds[server.DBSystem]
		if k.title != "" && strings.HasPrefix(args[0], k.title) {
			return nil, nil // it counts for its own server, whose main process has ended
		}
		if k.notServing(args) {
			return nil, nil
		}
		p.args = args
		if k.name != nil {
			server.Name = untrusted.Text(k.name(p, server, nil), untrusted.MaxLabel)
		}
	}
	// What follows needs more rights, or the server to be further on its way: the server is
	// followed without it.
	server.Apart = p.apart()
	noPorts := p.readPorts(server, tcp)
	if internal := kinds[server.DBSystem].internal; internal != nil {
		server.addInternal(internal(p, server, nil))
	}
	if slow != nil && len(server.Ports) == 0 {
		return nil, slow
	}
	// Side by side: both may hang.
	var files, library *Server
	var noFiles, noLibrary error
	var wait sync.WaitGroup
	wait.Go(func() { files, noFiles = s.part(server, "data directory", p.readFiles) })
	if kinds[server.DBSystem].tls {
		wait.Go(func() { library, noLibrary = s.part(server, "loaded libraries", p.readLibrary) })
	}
	wait.Wait()
	if files != nil {
		server.Version, server.DataDirectory, server.DataPath = files.Version, files.DataDirectory, files.DataPath
		server.DBSystem, server.Data, server.WAL, server.Binlog, server.Tablespaces = files.DBSystem, files.Data, files.WAL, files.Binlog, files.Tablespaces
		server.UnsupportedPorts = files.UnsupportedPorts
		server.addInternal(files.Internal)
		server.Name, server.NoName, server.DataID, server.Owned = files.Name, files.NoName, files.DataID, files.Owned
	}
	if library != nil {
		server.TLSLibrary = library.TLSLibrary
	}
	server.NoLibrary = noLibrary != nil && server.TLSLibrary == (Library{})
	return server, errors.Join(unlessGone(slow), unlessGone(noPorts), unlessGone(noFiles), unlessGone(noLibrary))
}

// part reads something of a server that may hang; without an answer it returns nil. What was
// read before an error is kept.
func (s *Scanner) part(server *Server, what string, read func(*Server) error) (*Server, error) {
	copied := *server
	return untrusted.Call(s.calls, server.Owner(), fmt.Sprintf("%s of process %d", what, server.PID), func() (*Server, error) {
		mine := copied
		problem := read(&mine)
		return &mine, problem
	})
}
