package server

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// maxNamespaces bounds the network namespaces that Listeners remembers: any user may make many.
const maxNamespaces = 4096

// Listener is a process that listens on the usual port of an engine's servers, and is neither a server that is known
// nor a proxy.
type Listener struct {
	// DBSystem is the one whose port it is.
	DBSystem DBSystem
	Port     uint16
	// PID and Program are the process and its name (/proc/PID/comm); 0 and empty if no process is found that has the
	// socket open.
	PID     int
	Program string
	// Namespace is the network namespace, as /proc/PID/ns/net has it.
	Namespace string
}

// String names it for a line of a log.
func (l Listener) String() string {
	who := "no process that is visible"
	if l.PID != 0 {
		who = fmt.Sprintf("process %d (%s)", l.PID, untrusted.Text(l.Program, untrusted.MaxLabel))
	}
	return fmt.Sprintf("%s listens on port %d of %s", who, l.Port, l.DBSystem)
}

// UnknownListeners are the programs that listen on a database's port and are not known.
type UnknownListeners struct {
	// Listeners has one entry for each port of a network namespace at the most.
	Listeners []Listener
	// IncompleteNamespaces counts the network namespaces whose sockets could not all be read or parsed.
	IncompleteNamespaces int
	// Beyond counts the network namespaces that were not scanned, as there are too many.
	Beyond int
}

// Listeners looks for programs that listen where database servers do and that nobody knows: what a list of programs
// lacks. A scan reads the tables of sockets of a bounded number of network namespaces, the one that has waited longest
// first, and nothing of a process unless one listens there.
type Listeners struct {
	scanner *Scanner
	// most bounds known, which is by the network namespace.
	most  int
	known map[string]*listening
	scans uint64
}

// listening is what is known of one network namespace.
type listening struct {
	// scan is the number of the latest scan that read it.
	scan uint64
	// servers are the sockets of servers and proxies that are known.
	servers map[string]bool
	found   []Listener
	// incomplete is true if the latest scan of it could not read or parse all of its sockets.
	incomplete bool
}

// Listeners returns a search among the processes that the Scanner sees. Its Scan is called by one goroutine at a time.
func (s *Scanner) Listeners() *Listeners {
	return &Listeners{scanner: s, most: maxNamespaces, known: map[string]*listening{}}
}

// Scan reads so many network namespaces, and returns what is known of all that are there.
func (l *Listeners) Scan(most int) (UnknownListeners, error) {
	l.scans++
	processes, err := l.namespaces()
	maps.DeleteFunc(l.known, func(namespace string, _ *listening) bool { return processes[namespace] == nil })
	var all UnknownListeners
	for namespace := range processes {
		switch {
		case l.known[namespace] != nil:
		case len(l.known) < l.most:
			l.known[namespace] = &listening{servers: map[string]bool{}}
		default:
			all.Beyond++
		}
	}
	longest := slices.SortedFunc(maps.Keys(l.known), func(a, b string) int {
		return cmp.Or(cmp.Compare(l.known[a].scan, l.known[b].scan), cmp.Compare(a, b))
	})
	tables := newNetworks(l.scanner.calls)
	problems := []error{err}
	for _, namespace := range longest[:min(most, len(longest))] {
		if err := l.scanNamespace(namespace, processes[namespace], tables); err != nil && len(problems) < maxProblems {
			problems = append(problems, err)
		}
	}
	for _, namespace := range slices.Sorted(maps.Keys(l.known)) {
		n := l.known[namespace]
		all.Listeners = append(all.Listeners, n.found...)
		if n.incomplete {
			all.IncompleteNamespaces++
		}
	}
	return all, errors.Join(problems...)
}

// namespaces returns the processes in each network namespace. A process that nobody may look into is mostly in one with
// others; it is an error if there are more of those than others, as without the right to look (CAP_SYS_PTRACE).
func (l *Listeners) namespaces() (map[string][]process, error) {
	pids, err := untrusted.Processes(l.scanner.procfs)
	if err != nil {
		return nil, err
	}
	all := map[string][]process{}
	var problem error
	read, refused := 0, 0
	for _, pid := range pids {
		p := newProcess(l.scanner.procfs, pid)
		namespace, err := os.Readlink(filepath.Join(p.dir, "ns", "net"))
		switch err = ended(err); {
		case err == nil:
			read++
			all[namespace] = append(all[namespace], p)
		case !gone(err):
			refused++
			problem = fmt.Errorf("network namespace of process %d: %w", pid, err)
		}
	}
	if refused <= read {
		problem = nil
	}
	return all, problem
}

// scanNamespace finds the listeners in a network namespace that these processes are in.
func (l *Listeners) scanNamespace(namespace string, processes []process, tables *networks) error {
	n := l.known[namespace]
	n.scan = l.scans
	var all listeners
	err := errEnded
	for _, p := range processes {
		if all, err = tables.of(p); !gone(err) {
			break
		}
	}
	if gone(err) {
		return nil
	}
	n.incomplete = err != nil
	maps.DeleteFunc(n.servers, func(inode string, _ bool) bool { return !all[inode].IsValid() })
	open := map[string]Listener{} // sockets without a known owner, by the inode's number
	for inode, at := range all {
		if engine := byPort[at.Port()]; engine != "" && !n.servers[inode] {
			open[inode] = Listener{DBSystem: engine, Port: at.Port(), Namespace: namespace}
		}
	}
	n.found = n.found[:0]
	if len(open) == 0 {
		return err
	}
	l.owners(processes, open, n.servers)
	ports := map[uint16]Listener{}
	for _, o := range open {
		if before, is := ports[o.Port]; !is || before.PID == 0 || o.PID != 0 && o.PID < before.PID {
			ports[o.Port] = o
		}
	}
	n.found = slices.SortedFunc(maps.Values(ports), func(a, b Listener) int { return cmp.Compare(a.Port, b.Port) })
	return err
}

// owners fills in which processes have sockets open, and moves those of servers and proxies that are known into
// servers.
func (l *Listeners) owners(processes []process, open map[string]Listener, servers map[string]bool) {
	type owner struct {
		process
		program string
		known   bool
	}
	var all []owner
	for _, p := range processes {
		st, err := p.stat()
		if err != nil {
			continue // it has ended
		}
		_, server := l.scanner.Programs.Of(st.comm)
		all = append(all, owner{p, st.comm, server || proxies[st.comm]})
	}
	// Those that are known first: mostly they have the sockets open, and nobody else's open files need to be read.
	slices.SortStableFunc(all, func(a, b owner) int {
		switch {
		case a.known == b.known:
			return cmp.Compare(a.pid, b.pid)
		case a.known:
			return -1
		}
		return 1
	})
	left := len(open)
	for _, o := range all {
		if left == 0 {
			return
		}
		_ = o.openFiles(func(_, target string) bool { // of one that has ended, or may not be looked into, nothing is known
			inode, ok := strings.CutPrefix(target, "socket:[")
			inode = strings.TrimSuffix(inode, "]")
			at, wanted := open[inode]
			if !ok || !wanted || at.PID != 0 {
				return true
			}
			left--
			if o.known {
				delete(open, inode)
				servers[inode] = true
				return left > 0
			}
			at.PID, at.Program = o.pid, o.program
			open[inode] = at
			return left > 0
		})
	}
}

// byPort are the engines by the port that their servers listen on unless they are configured otherwise.
var byPort = func() map[uint16]DBSystem {
	all := map[uint16]DBSystem{}
	for engine, k := range kinds {
		if k.port != 0 {
			all[k.port] = engine
		}
	}
	return all
}()

// SystemsWithDefaultPort returns, in order, the database systems whose default port Listeners covers. A system whose
// default port is another system's is not among them.
func SystemsWithDefaultPort() []DBSystem { return slices.Sorted(maps.Values(byPort)) }

// proxies are programs that listen on a database's port and pass on what they receive, by the name that the kernel
// keeps: the server behind them counts its statements. One that is not in here counts as an unknown listener: the
// count is too high rather than too low.
var proxies = func() map[string]bool {
	all := map[string]bool{}
	for _, name := range []string{
		"pgbouncer", "pgcat", "odyssey", "pgpool", "pgagroal", "pgdog", "supavisor", // poolers
		"proxysql", "mysqlrouter", "maxscale", "vtgate", "nutcracker", "predixy", "cloud-sql-proxy", "cloud_sql_proxy", "alloydb-auth-proxy",
		"haproxy", "envoy", "cilium-envoy", "linkerd2-proxy", "ztunnel", "nginx", "traefik", "socat", "teleport", "toxiproxy-server",
		"docker-proxy", "rootlesskit", "rootlessport", "slirp4netns", "pasta", "kube-proxy", "klipper-lb", "kubectl",
		"ssh", "sshd", "sshd-session", "systemd", "systemd-socket-proxyd",
	} {
		all[comm(name)] = true
	}
	return all
}()
