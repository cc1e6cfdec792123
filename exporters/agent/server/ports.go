package server

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
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

// maxTable bounds a network namespace's table of sockets: 150 bytes a connection.
const maxTable = 64 << 20

// networks are the listeners of each network namespace that one scan came by: a table also
// holds every connection, and many servers may share one.
type networks struct {
	mu    sync.Mutex
	known map[string]listeners
}

func newNetworks() *networks { return &networks{known: map[string]listeners{}} }

// of returns the listeners in a process's network namespace.
func (n *networks) of(p process) (listeners, error) {
	namespace, err := os.Readlink(filepath.Join(p.dir, "ns", "net"))
	if err != nil {
		namespace = p.dir
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if l, ok := n.known[namespace]; ok {
		return l, nil
	}
	l := listeners{}
	var problems []error
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		if err := l.read(filepath.Join(p.dir, table)); err != nil && !errors.Is(err, os.ErrNotExist) { // no IPv6
			problems = append(problems, err)
		}
	}
	if err := errors.Join(problems...); err != nil {
		return l, err
	}
	n.known[namespace] = l
	return l, nil
}

// read adds those of a table such as /proc/PID/net/tcp.
func (l listeners) read(table string) error {
	var problem error
	err := foreign.Lines(table, maxTable, func(line string) bool {
		const local, state, inode, listen = 1, 3, 9, "0A"
		fields := strings.Fields(line)
		if len(fields) <= inode || fields[state] != listen {
			return true
		}
		address, err := parseLocal(fields[local])
		if err != nil {
			problem = fmt.Errorf("%s: local address %q: %w", table, fields[local], err)
			return false
		}
		l[fields[inode]] = address
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
