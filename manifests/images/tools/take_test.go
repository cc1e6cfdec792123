package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What is missing is named, with the package that has it.
func TestMissing(t *testing.T) {
	root := t.TempDir()
	for _, step := range []struct{ want, then string }{
		{"postgresql/*/bin/pgbench in that system: it is of the Debian package postgresql", "usr/lib/postgresql/9/bin/pgbench"},
		{"/usr/bin/sysbench in that system: it is of the Debian package sysbench", "usr/bin/sysbench"},
		{"/usr/bin/fio in that system: it is of the Debian package fio", "usr/bin/fio"},
		{"/usr/bin/fio: ", ""}, // no program
	} {
		_, err := take(root, "amd64")
		if err == nil || !strings.Contains(err.Error(), step.want) {
			t.Errorf("%v, want %q", err, step.want)
		}
		if step.then == "" {
			continue
		}
		file := filepath.Join(root, step.then)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("no program"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// Of several versions of PostgreSQL the newest is taken, by its number.
func TestNewest(t *testing.T) {
	root := t.TempDir()
	for _, file := range []string{"usr/lib/postgresql/9.6/bin/pgbench", "usr/lib/postgresql/10/bin/pgbench", "usr/lib/postgresql/9/bin/pgbench", "usr/bin/sysbench", "usr/bin/fio"} {
		file = filepath.Join(root, file)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	files, err := programs(root)
	if err != nil || files["/usr/bin/pgbench"] != "/usr/lib/postgresql/10/bin/pgbench" || len(files) != 3 {
		t.Errorf("%v %v", err, files)
	}
}
