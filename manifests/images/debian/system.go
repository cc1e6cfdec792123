// Package debian copies programs out of a Debian system, with the shared libraries they need, their packages' metadata
// and their licences. It reads files and dpkg's database, and runs nothing of what it copies.
package debian

import (
	"path/filepath"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// System is the root folder of a Debian or Ubuntu system: "/", or a folder with another one.
type System string

// real is a file of the system without its links, as seen by the system; it need not exist.
func (s System) real(path string) (string, error) {
	full, err := securejoin.SecureJoin(string(s), path)
	if err != nil {
		return "", err
	}
	rest, err := filepath.Rel(string(s), full)
	return filepath.Join("/", rest), err
}

// at is where a file of the system is on this machine.
func (s System) at(real string) string { return filepath.Join(string(s), real) }
