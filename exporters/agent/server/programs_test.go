package server

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Names are added to the known ones, as the kernel keeps them, and a wrong one names what is wrong.
func TestPrograms(t *testing.T) {
	p, err := NewPrograms("redis=keydb-server", "postgresql=a-very-long-name-of-a-program")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]DBSystem{
		"postgres": PostgreSQL, ".postgres-wrapp": PostgreSQL, "edb-postmaster": PostgreSQL, ".edb-postmaster": PostgreSQL, "mysqld": MySQL, ".mysqld-wrapped": MySQL,
		".mariadbd-wrapp": MariaDB, ".valkey-server-": Redis, "keydb-server": Redis, ".keydb-server-w": Redis, "a-very-long-nam": PostgreSQL,
		"postgres_export": "", "mysqld_safe": "", "mysqld_exporter": "", "redis-sentinel": "", "redis-server-7.": Redis, "postgres-16": PostgreSQL, "mysqld-8.0": MySQL, "redis-server-ex": "", "postgres-16b": "", "": "", ".": "", "docker-entrypoi": "",
	} {
		if got, ok := p.Of(name); got != want || ok != (want != "") {
			t.Errorf("a process called %q is %q's", name, got)
		}
	}
	for path, want := range map[string]DBSystem{
		"/usr/lib/postgresql/15/bin/postgres (deleted)": PostgreSQL, "/nix/store/x/bin/.postgres-wrapped": PostgreSQL, "/nix/store/x/bin/.redis-server-wrapped_": Redis,
		"/opt/a-very-long-name-of-a-program": PostgreSQL, "/opt/a-very-long-nam": "", "/usr/bin/bash": "", "/usr/bin/postgres_exporter": "", "/nix/.postgres-wrapp": "", "/opt/redislabs/bin/redis-server-7.2": Redis, "/opt/bin/redis-server-exporter": "",
	} {
		if got, ok := p.OfFile(path); got != want || ok != (want != "") {
			t.Errorf("the program %q is %q's", path, got)
		}
	}
	names := strings.Join(p.Names(), " ")
	for _, want := range []string{"postgres", ".postgres-wrapp", "keydb-server", ".keydb-server-w"} {
		if !strings.Contains(" "+names+" ", " "+want+" ") {
			t.Errorf("the names are %s, without %s", names, want)
		}
	}
	for wrong, want := range map[string]string{
		"keydb-server": "ENGINE=NAME", "oracle=ora": "ENGINE=NAME", "redis=": "no name of a program", "redis=/usr/bin/x": "no name of a program", "redis=mysqld": "mysql's already",
	} {
		if _, err := NewPrograms(wrong); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), wrong) {
			t.Errorf("%s: %v, want %q", wrong, err, want)
		}
	}
	if _, err := NewPrograms(strings.Split(strings.Repeat("redis=x ", maxPrograms+1), " ")[:maxPrograms+1]...); err == nil {
		t.Error("any number of names can be added")
	}
}

// Real processes: one that is wrapped as nixpkgs does it, and one below a script of its own name that waits for it.
func TestRealPrograms(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile(testkit.Tool(t, "sleep"))
	if err != nil {
		t.Fatal(err)
	}
	script := "#!/bin/sh\n" + dir + "/bin/postgres 600\necho ended\n"
	for name, content := range map[string]string{".postgres-wrapped": string(text), "bin/postgres": string(text), "postgres": script} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	start := func(name string, args ...string) int {
		cmd := exec.Command(filepath.Join(dir, name), args...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			cmd.Wait()
		})
		return cmd.Process.Pid
	}
	wrapped, above := start(".postgres-wrapped", "600"), start("postgres")
	s := NewScanner("/proc", untrusted.NewCalls(time.Second, untrusted.DefaultHanging))
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		all, err := s.Candidates()
		if err != nil {
			t.Log(err) // of other processes
		}
		found := map[int]bool{}
		below := 0
		for _, c := range all {
			found[c.PID] = true
			if st, err := newProcess("/proc", c.PID).stat(); err == nil && st.parent == above {
				below = c.PID
			}
		}
		_, alone := s.Candidate(above)
		_, child := s.Candidate(below)
		if !found[wrapped] || found[above] || alone || below == 0 || !child {
			return fmt.Errorf("the wrapped one %v; the script %v, alone %v; below it process %d, alone %v", found[wrapped], found[above], alone, below, child)
		}
		return nil
	})
}
