package main

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/manifests/images/debian"
)

// opened are files that the programs open by themselves.
var opened = []struct {
	// pattern is where they are; TRIPLE is the architecture, as Debian's paths have it.
	pattern string
	// by is the program or library that opens them, of the package that brings both; where it is taken, they must be
	// there.
	by, of string
}{
	{"/usr/share/sysbench/*.lua", "sysbench", "sysbench"},
	// How sysbench logs in: MySQL's and Percona's servers require caching_sha2_password.
	{"/usr/lib/TRIPLE/libmariadb3/plugin/*.so", "libmariadb.so.3", "libmariadb3"},
}

// take finds the programs and what they need, in the system whose root folder is given.
func take(root, arch string) (*debian.Contents, error) {
	files, err := programs(root)
	if err != nil {
		return nil, err
	}
	system := debian.System(root)
	objects := slices.Sorted(maps.Values(files))
	linked, err := system.Libraries(arch, objects)
	if err != nil {
		return nil, err
	}
	taken := map[string]bool{}
	for _, file := range append(linked, objects...) {
		taken[path.Base(file)] = true
	}
	for _, o := range opened {
		if !taken[o.by] {
			continue
		}
		found, err := glob(root, strings.ReplaceAll(o.pattern, "TRIPLE", debian.Triple(arch)))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, missing(o.pattern, o.of)
		}
		for _, file := range found {
			files[file] = file
			if path.Ext(file) == ".so" {
				objects = append(objects, file)
			}
		}
	}
	// The C library itself opens libgcc_s when a thread is cancelled or ends.
	libraries, err := system.Libraries(arch, objects, "libgcc_s.so.1")
	if err != nil {
		return nil, err
	}
	for _, file := range libraries {
		files[file] = file
	}
	return system.Take(files)
}

// programs are where the programs are to be, and where they are.
func programs(root string) (map[string]string, error) {
	// /usr/bin/pgbench is a script that looks for the newest one.
	const pgbench = "/usr/lib/postgresql/*/bin/pgbench"
	servers, err := glob(root, pgbench)
	if err != nil {
		return nil, err
	}
	version := func(file string) int {
		n, _ := strconv.Atoi(path.Base(path.Dir(path.Dir(file))))
		return n
	}
	if len(servers) == 0 {
		return nil, missing(pgbench, "postgresql")
	}
	newest := slices.MaxFunc(servers, func(a, b string) int { return version(a) - version(b) })
	files := map[string]string{"/usr/bin/pgbench": newest}
	for _, program := range []string{"sysbench", "fio"} {
		file := "/usr/bin/" + program
		if _, err := os.Lstat(filepath.Join(root, file)); errors.Is(err, fs.ErrNotExist) {
			return nil, missing(file, program)
		}
		files[file] = file
	}
	return files, nil
}

// glob finds files in the system, by their paths in it.
func glob(root, pattern string) ([]string, error) {
	found, err := filepath.Glob(filepath.Join(root, pattern))
	for i, file := range found {
		found[i] = filepath.Join("/", strings.TrimPrefix(file, root))
	}
	return found, err
}

func missing(file, of string) error {
	return fmt.Errorf("there is no %s in that system: it is of the Debian package %s", file, of)
}
