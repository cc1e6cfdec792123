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

// readPorts finds the TCP ports a process listens on, in its network namespace.
func (p process) readPorts(s *Server) error {
	sockets, err := p.sockets()
	if err != nil {
		return fmt.Errorf("open files: %w", err)
	}
	var problems []error
	for _, table := range []string{"net/tcp", "net/tcp6"} {
		ports, err := listening(filepath.Join(p.dir, table), sockets)
		if err != nil && !errors.Is(err, os.ErrNotExist) { // no IPv6
			problems = append(problems, err)
		}
		s.Ports = append(s.Ports, ports...)
	}
	slices.Sort(s.Ports)
	s.Ports = slices.Compact(s.Ports)
	s.Ports = slices.DeleteFunc(s.Ports, func(port uint16) bool { return port == xPluginPort })
	if len(s.Ports) > maxPorts {
		s.Ports = s.Ports[:maxPorts]
	}
	return errors.Join(problems...)
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

// listening returns the ports of a table such as /proc/PID/net/tcp that listen and whose
// inode is among sockets.
func listening(table string, sockets map[string]bool) ([]uint16, error) {
	f, err := os.Open(table)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var ports []uint16
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		const local, state, inode, listen = 1, 3, 9, "0A"
		fields := strings.Fields(lines.Text())
		if len(fields) <= inode || fields[state] != listen || !sockets[fields[inode]] {
			continue
		}
		_, hex, _ := strings.Cut(fields[local], ":")
		port, err := strconv.ParseUint(hex, 16, 16)
		if err != nil {
			return ports, fmt.Errorf("%s: local address %q: %w", table, fields[local], err)
		}
		ports = append(ports, uint16(port))
	}
	return ports, lines.Err()
}
