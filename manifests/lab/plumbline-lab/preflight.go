package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
)

// spacePerCopy is what one copy of a class's data may grow to in a demo: data, WAL, the
// replica's own overhead.
const spacePerCopy = 3 << 29

// maxSocketDirectory leaves room for the socket's own name in the 107 bytes of sun_path.
const maxSocketDirectory = 107 - len("/.s.PGSQL.5432")

// preflight refuses, with what to do, what would fail later on.
func preflight(lab *config.Lab) error {
	if err := sandbox.Vacant(lab.Dir); err != nil {
		return err
	}
	if _, err := user.Lookup("postgres"); err != nil {
		return errors.New("no user postgres to run the databases as; run `make packages`, or apt-get install postgresql")
	}
	if err := checkPackages(lab); err != nil {
		return err
	}
	ports := lab.Ports()
	for _, port := range slices.Sorted(maps.Keys(ports)) {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return fmt.Errorf("port %d, for %s: %w; set LAB_PORT_BASE to another range", port, ports[port], err)
		}
		l.Close()
	}
	copies := 0
	for _, c := range lab.Classes {
		if n := len(c.SocketDirectory()); n > maxSocketDirectory {
			return fmt.Errorf("LAB_DIR %s is too long: PostgreSQL's socket path would exceed 107 bytes", lab.Dir)
		}
		copies += max(len(c.Backend.Replicas), 1)
	}
	return checkSpace(lab.Dir, uint64(copies)*spacePerCopy)
}

// checkPackages looks for the programs of the system that the storage classes and databases need.
func checkPackages(lab *config.Lab) error {
	for _, c := range lab.Classes {
		if err := findPrograms("class "+c.Name, c.Backend.Packages); err != nil {
			return err
		}
	}
	for _, name := range lab.Databases {
		d, err := lab.Database(name)
		if err != nil {
			return err
		}
		if err := findPrograms("database "+name, d.Packages); err != nil {
			return err
		}
	}
	return nil
}

// findPrograms names the first program that is missing, and all packages to install.
func findPrograms(who string, packages map[string]string) error {
	var first error
	missing := map[string]bool{}
	for _, program := range slices.Sorted(maps.Keys(packages)) {
		if _, err := exec.LookPath(program); err != nil {
			missing[packages[program]] = true
			if first == nil {
				first = fmt.Errorf("%s needs %s: %w", who, program, err)
			}
		}
	}
	if first == nil {
		return nil
	}
	return fmt.Errorf("%w; apt-get install %s", first, strings.Join(slices.Sorted(maps.Keys(missing)), " "))
}

// checkSpace reads the file system that dir will be made on.
func checkSpace(dir string, need uint64) error {
	existing := dir
	for {
		if _, err := os.Stat(existing); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		existing = filepath.Dir(existing)
	}
	var s unix.Statfs_t
	if err := unix.Statfs(existing, &s); err != nil {
		return fmt.Errorf("%s: %w", existing, err)
	}
	if free := s.Bavail * uint64(s.Bsize); free < need {
		return fmt.Errorf("%s has %.1f GiB free and the lab may need %.1f GiB; set LAB_DIR to a larger disk, or fewer LAB_CLASSES",
			existing, float64(free)/(1<<30), float64(need)/(1<<30))
	}
	return nil
}
