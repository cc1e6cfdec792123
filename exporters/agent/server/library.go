package server

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// maxMaps bounds a process's table of mappings: it may have 65,530 of them, of any name.
const maxMaps = 4 << 20

// Library is a TLS library as a process's mappings show it; the zero Library is none.
type Library struct {
	// Path is in the process's own file system view. It is what the process called it, and no
	// label.
	Path string
	// Device, as major:minor in hexadecimal digits, and Inode are the mapped file's.
	Device string
	Inode  uint64
}

// readLibrary finds the TLS library that a process has loaded: OpenSSL's libssl, wherever
// its image keeps it.
func (p process) readLibrary(s *Server) error {
	err := untrusted.Lines(filepath.Join(p.dir, "maps"), maxMaps, func(line string) bool {
		const permissions, device, inode, path = 1, 3, 4, 5
		fields := strings.Fields(line)
		if len(fields) <= path || !strings.Contains(fields[permissions], "x") || !strings.HasPrefix(filepath.Base(fields[path]), "libssl.so") {
			return true
		}
		number, err := strconv.ParseUint(fields[inode], 10, 64)
		if err != nil {
			return true
		}
		s.TLSLibrary = Library{Path: p.within(fields[path]), Device: fields[device], Inode: number}
		return false
	})
	if err != nil {
		return fmt.Errorf("loaded libraries: %w", ended(err))
	}
	return nil
}

// within returns a path as the process itself sees it. Of a process in a root of its own that is no mount namespace's
// (chroot), procfs shows paths from outside.
func (p process) within(path string) string {
	root, err := os.Readlink(filepath.Join(p.dir, "root"))
	if err != nil || root == "/" {
		return path
	}
	if rest, ok := strings.CutPrefix(path, root+"/"); ok {
		return "/" + rest
	}
	return path
}
