package server

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// readLibrary finds the TLS library that a process has loaded: OpenSSL's libssl, wherever
// its image keeps it.
func (p process) readLibrary(s *Server) error {
	f, err := os.Open(filepath.Join(p.dir, "maps"))
	if err != nil {
		return fmt.Errorf("loaded libraries: %w", ended(err))
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		const permissions, path = 1, 5
		fields := strings.Fields(lines.Text())
		if len(fields) <= path || !strings.Contains(fields[permissions], "x") {
			continue
		}
		if strings.HasPrefix(filepath.Base(fields[path]), "libssl.so") {
			s.TLSLibrary = filepath.Join(p.dir, "root", fields[path])
			return nil
		}
	}
	return ended(lines.Err())
}
