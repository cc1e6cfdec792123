package server

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// maxListening bounds the addresses that one server listens on, and their ports.
const maxListening = 16

// listeners are the TCP addresses and ports that are listened on, by the socket's inode number.
type listeners map[string]netip.AddrPort

// reading are the listeners of a network namespace, as far as they are read.
type reading struct {
	mu   sync.Mutex
	read listeners
}

// add adds one that was read.
func (r *reading) add(inode string, at netip.AddrPort) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read[inode] = at
}

// soFar returns those that are read; others may yet be.
func (r *reading) soFar() listeners {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.read)
}

// maxTable bounds what is read of a network namespace's table of sockets: 150 bytes each.
const maxTable = 64 << 20

// networks are the listeners of each network namespace that one scan came by: many servers may share one. Each is read
// once, whatever comes of it, and holds up nobody in another.
type networks struct {
	calls *untrusted.Calls

	mu    sync.Mutex
	known map[string]func() (listeners, error)
}

func newNetworks(calls *untrusted.Calls) *networks {
	return &networks{calls: calls, known: map[string]func() (listeners, error){}}
}

// of returns the listeners in a process's network namespace; with an error as far as they are known.
func (n *networks) of(p process) (listeners, error) {
	namespace, err := os.Readlink(filepath.Join(p.dir, "ns", "net"))
	if err != nil {
		namespace = p.dir
	}
	for {
		read, mine := n.reader(namespace, p)
		if l, err := read(); mine || !gone(err) {
			return l, err
		}
		// It was read by way of a process that has ended.
	}
}

// reader returns what reads the tables of a namespace, and whether it does so by way of this process.
func (n *networks) reader(namespace string, p process) (read func() (listeners, error), mine bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if read, ok := n.known[namespace]; ok {
		return read, false
	}
	read = sync.OnceValues(func() (listeners, error) {
		r := &reading{read: listeners{}}
		err := p.listening(r, n.calls)
		if gone(err) {
			n.mu.Lock()
			delete(n.known, namespace)
			n.mu.Unlock()
		}
		return r.soFar(), err // also if it goes on
	})
	n.known[namespace] = read
	return read, true
}

// listening reads the tables of the process's network namespace, each by a call of its own: the other one knows nothing
// of a table that does not answer, or cannot be understood. The calls are the agent's own: the tables are the kernel's,
// and a process whose files hang has no part in them. As long as the one of IPv4 is there, so is the process, and
// another one that is missing does not exist.
func (p process) listening(r *reading, calls *untrusted.Calls) error {
	four, six := filepath.Join(p.dir, "net/tcp"), filepath.Join(p.dir, "net/tcp6")
	var noFour, noSix error
	var both sync.WaitGroup
	for table, problem := range map[string]*error{four: &noFour, six: &noSix} {
		both.Go(func() {
			*problem = calls.Do(fmt.Sprintf("TCP sockets of process %d in %s", p.pid, filepath.Base(table)), func() error { return r.table(table) })
		})
	}
	both.Wait()
	switch {
	case !errors.Is(noSix, os.ErrNotExist):
		return errors.Join(noSix, noFour)
	case noFour != nil:
		return noFour
	}
	// No IPv6, or the process has ended between the two.
	_, err := os.Lstat(four)
	return err
}

// errCutOff is the error of a table that is not whole.
var errCutOff = errors.New("the table is cut off")

// table adds those of a table such as /proc/PID/net/tcp. The kernel prints them before all other sockets, which may be
// very many: only the first of those is read.
func (r *reading) table(table string) error {
	const slot, local, state, inode, listen = 0, 1, 3, 9, "0A"
	problem := fmt.Errorf("%s: %w: it has no heading", table, errCutOff)
	err := untrusted.Lines(table, maxTable, func(line string) bool {
		fields := strings.Fields(line)
		if len(fields) <= inode {
			problem = fmt.Errorf("%s: %w: a line has %d fields", table, errCutOff, len(fields))
			return false
		}
		if fields[slot] == "sl" {
			problem = nil
			return true
		}
		if fields[state] != listen {
			return false
		}
		address, err := parseLocal(fields[local])
		if err != nil {
			problem = fmt.Errorf("%s: local address %q: %w", table, untrusted.Text(fields[local], untrusted.MaxLabel), err)
			return true
		}
		r.add(fields[inode], address)
		return true
	})
	return errors.Join(err, problem)
}

// parseLocal reads an address as the kernel prints it: words of 32 bits in the machine's own order, and the port.
func parseLocal(text string) (netip.AddrPort, error) {
	words, port, _ := strings.Cut(text, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	raw, err := hex.DecodeString(words)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for i := 0; i+4 <= len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	address, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("%d bytes", len(raw))
	}
	return netip.AddrPortFrom(address.Unmap(), uint16(n)), nil
}

// readPorts finds the TCP ports a process listens on, in its network namespace. With an error there may be others.
func (p process) readPorts(s *Server, n *networks) error {
	sockets, err := p.sockets()
	if err != nil {
		s.MorePorts = true
		return fmt.Errorf("open files: %w", err)
	}
	if len(sockets) == 0 {
		return nil // not yet, or never: the table may be long
	}
	all, err := n.of(p)
	for inode, at := range all {
		if sockets[inode] {
			s.Ports = append(s.Ports, at.Port())
			s.Listening = append(s.Listening, at)
		}
	}
	s.MorePorts = err != nil
	s.sortPorts()
	return err
}

// sortPorts brings the ports and addresses into their order, without those that are not for clients, and no more than
// are kept.
func (s *Server) sortPorts() {
	ports := slices.Clone(s.Ports)
	other := func(port uint16) bool {
		isOther := kinds[s.DBSystem].isOther
		return slices.Contains(s.Internal, port) || slices.Contains(s.UnsupportedPorts, port) || isOther != nil && isOther(port, ports)
	}
	s.Waits = len(ports) > 0 && !slices.ContainsFunc(ports, func(port uint16) bool { return !other(port) })
	if !s.Waits { // what listens serves somebody
		s.Ports = slices.DeleteFunc(s.Ports, other)
		s.Listening = slices.DeleteFunc(s.Listening, func(at netip.AddrPort) bool { return other(at.Port()) })
	}
	slices.Sort(s.Ports)
	s.Ports = slices.Compact(s.Ports)
	slices.SortFunc(s.Listening, netip.AddrPort.Compare)
	s.Listening = slices.Compact(s.Listening)
	if len(s.Listening) > maxListening {
		s.Listening = s.Listening[:maxListening]
	}
	if len(s.Ports) > maxListening {
		s.Ports = s.Ports[:maxListening]
	}
}

// addInternal notes ports that are not for clients.
func (s *Server) addInternal(ports []uint16) {
	s.Internal = union(s.Internal, ports)
	s.sortPorts()
}

// union returns the ports of both, in order.
func union(a, b []uint16) []uint16 {
	all := slices.Concat(a, b)
	slices.Sort(all)
	return slices.Compact(all)
}

// KeepPorts adds the ports and addresses that an earlier scan found, if this one could not see all: those that it did
// not see may still be there.
func (s *Server) KeepPorts(before Server) {
	if !s.MorePorts {
		return
	}
	s.Ports = append(slices.Clone(s.Ports), before.Ports...)
	s.Listening = append(slices.Clone(s.Listening), before.Listening...)
	s.UnsupportedPorts = union(s.UnsupportedPorts, before.UnsupportedPorts)
	s.addInternal(before.Internal)
}

// sockets returns the inode numbers of the process's sockets.
func (p process) sockets() (map[string]bool, error) {
	inodes := map[string]bool{}
	err := p.openFiles(func(_, target string) bool {
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
		return true
	})
	return inodes, err
}
