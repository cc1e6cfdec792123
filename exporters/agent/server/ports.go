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

	"github.com/plumbline/plumbline/exporters/agent/foreign"
)

// maxListening bounds the addresses that one server listens on.
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

// networks are the listeners of each network namespace that one scan came by: many servers may share one. Each is read once,
// whatever comes of it, and holds up nobody in another.
type networks struct {
	calls *foreign.Calls

	mu    sync.Mutex
	known map[string]func() (listeners, error)
}

func newNetworks(calls *foreign.Calls) *networks {
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
		// It was asked for by way of a process that has ended.
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
		// The agent's own call: the tables are the kernel's, and whoever's files hang has no part in them.
		r := &reading{read: listeners{}}
		err := n.calls.Do(fmt.Sprintf("TCP sockets of process %d", p.pid), func() error { return p.listening(r) })
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

// listening reads the tables of the process's network namespace. The one of IPv4 is read last: as long as it is there, so is the
// process, and another one that is missing does not exist.
func (p process) listening(r *reading) error {
	err := r.table(filepath.Join(p.dir, "net/tcp6"))
	if errors.Is(err, os.ErrNotExist) {
		err = nil // no IPv6
	}
	return errors.Join(err, r.table(filepath.Join(p.dir, "net/tcp")))
}

// table adds those of a table such as /proc/PID/net/tcp. The kernel prints them before all other sockets, of which there may be very many: none of
// those is read but the first.
func (r *reading) table(table string) error {
	var problem error
	err := foreign.Lines(table, maxTable, func(line string) bool {
		const slot, local, state, inode, listen = 0, 1, 3, 9, "0A"
		fields := strings.Fields(line)
		if len(fields) <= inode || fields[slot] == "sl" {
			return true // the heading
		}
		if fields[state] != listen {
			return false
		}
		address, err := parseLocal(fields[local])
		if err != nil {
			problem = fmt.Errorf("%s: local address %q: %w", table, fields[local], err)
			return false
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

// readPorts finds the TCP ports a process listens on, in its network namespace.
func (p process) readPorts(s *Server, n *networks) error {
	sockets, err := p.sockets()
	if err != nil {
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
	if isOther := kinds[s.Engine].isOther; isOther != nil {
		ports := slices.Clone(s.Ports)
		s.Ports = slices.DeleteFunc(s.Ports, func(port uint16) bool { return isOther(port, ports) })
		s.Listening = slices.DeleteFunc(s.Listening, func(at netip.AddrPort) bool { return isOther(at.Port(), ports) })
	}
	slices.Sort(s.Ports)
	s.Ports = slices.Compact(s.Ports)
	slices.SortFunc(s.Listening, netip.AddrPort.Compare)
	s.Listening = slices.Compact(s.Listening)
	if len(s.Listening) > maxListening {
		s.Listening = s.Listening[:maxListening]
	}
	if len(s.Ports) > maxPorts {
		s.Ports = s.Ports[:maxPorts]
	}
	return err
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
