package server

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// xPluginPort is the usual port of MySQL's X plugin, whose protocol is another one.
const xPluginPort = 33060

// listeners are the TCP ports that are listened on, by the socket's inode number.
type listeners map[string]uint16

// networks are the listeners of each network namespace that one scan came by: a table also
// holds every connection, and many servers may share one.
type networks map[string]listeners

// of returns the listeners in a process's network namespace.
func (n networks) of(p process) (listeners, error) {
	namespace, err := os.Readlink(filepath.Join(p.dir, "ns", "net"))
	if err != nil {
		namespace = p.dir
	}
	if l, ok := n[namespace]; ok {
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
	n[namespace] = l
	return l, nil
}

// read adds those of a table such as /proc/PID/net/tcp.
func (l listeners) read(table string) error {
	f, err := os.Open(table)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		const local, state, inode, listen = 1, 3, 9, "0A"
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode || fields[state] != listen {
			continue
		}
		_, hex, _ := strings.Cut(fields[local], ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		if err != nil {
			return fmt.Errorf("%s: local address %q: %w", table, fields[local], err)
		}
		l[fields[inode]] = uint16(port)
	}
	return lines.Err()
}

// readPorts finds the TCP ports a process listens on, in its network namespace.
func (p process) readPorts(s *Server, n networks) error {
	sockets, err := p.sockets()
	if err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	all, err := n.of(p)
	for inode, port := range all {
		if sockets[inode] && port != xPluginPort {
			s.Ports = append(s.Ports, port)
		}
	}
	slices.Sort(s.Ports)
	s.Ports = slices.Compact(s.Ports)
	if len(s.Ports) > maxPorts {
		s.Ports = s.Ports[:maxPorts]
	}
	return err
}

// sockets returns the inode numbers of the process's sockets.
func (p process) sockets() (map[string]bool, error) {
	dir := filepath.Join(p.dir, "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	inodes := map[string]bool{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // closed meanwhile
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes, nil
}
