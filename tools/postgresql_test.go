package tools

import (
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// postgresqlBox is a copy of the script with a npm that hands out an archive made here.
func postgresqlBox(t *testing.T, links string, checksum func(archive []byte) string) (script string, environment []string) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		testkit.Skip(t, "needs node, npm's own")
	}
	box := t.TempDir()
	native := filepath.Join(box, "package", "native")
	write(t, filepath.Join(native, "bin", "postgres"), "#!/bin/sh\necho postgres\n")
	write(t, filepath.Join(native, "lib", "libpq.so.5.18"), "library")
	write(t, filepath.Join(native, "pg-symlinks.json"), links)
	archive := filepath.Join(box, "server.tgz")
	if out, code := run(t, nil, "tar", "--create", "--gzip", "--file="+archive, "--directory="+box, "package"); code != 0 {
		t.Fatal(out)
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("postgresql")
	if err != nil {
		t.Fatal(err)
	}
	script = filepath.Join(box, "checkout", "tools", "postgresql")
	write(t, script, string(text))
	write(t, script+".versions", "# of a test\n18 18.0.0 "+checksum(content)+"\n")
	write(t, filepath.Join(box, "bin", "npm"), "#!/bin/sh\ncp "+archive+" .\n")
	return script, []string{"PATH=" + filepath.Join(box, "bin") + ":" + os.Getenv("PATH"), "PLUMBLINE_CACHE=" + filepath.Join(box, "cache")}
}

func right(archive []byte) string {
	sum := sha512.Sum512(archive)
	return "sha512-" + base64.StdEncoding.EncodeToString(sum[:])
}

// A server is taken if it is the one whose checksum is known, with its libraries' links, and once.
func TestPostgresql(t *testing.T) {
	script, environment := postgresqlBox(t, `[{"source":"native/lib/libpq.so.5.18","target":"native/lib/libpq.so.5"}]`, right)
	if out, code := run(t, environment, script, "18"); code != 0 || !strings.Contains(out, "18.0.0") {
		t.Fatalf("exit code %d: %s", code, out)
	}
	server := filepath.Join(filepath.Dir(filepath.Dir(script)), "build", "postgresql", "18")
	if out, _ := run(t, nil, filepath.Join(server, "bin", "postgres")); out != "postgres\n" {
		t.Errorf("it prints %q", out)
	}
	if text, err := os.ReadFile(filepath.Join(server, "lib", "libpq.so.5")); err != nil || string(text) != "library" {
		t.Errorf("the library's link leads to %q, %v", text, err)
	}
	if out, code := run(t, environment, script, "18"); code != 0 || out != "" {
		t.Errorf("the second time: exit code %d, %q", code, out)
	}
	if out, _ := run(t, environment, script, "--list"); out != "18 18.0.0 there\n" {
		t.Errorf("it lists %q", out)
	}
}

func TestPostgresqlRefuses(t *testing.T) {
	for _, c := range []struct {
		name, links string
		checksum    func([]byte) string
		major, want string
	}{
		{"another file", "[]", func([]byte) string { return right([]byte("another")) }, "18", "has the checksum"},
		{"a link that leads out", `[{"source":"native/bin/postgres","target":"../../outside"}]`, right, "18", "outside of the package"},
		{"a version without a checksum", "[]", right, "14", "no PostgreSQL 14"},
	} {
		t.Run(c.name, func(t *testing.T) {
			script, environment := postgresqlBox(t, c.links, c.checksum)
			out, code := run(t, environment, script, c.major)
			if code == 0 || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %q: %s", code, c.want, out)
			}
			for _, pattern := range []string{"build/postgresql/*", "../cache/postgresql/*", "../cache/postgresql/.new*"} {
				if left, _ := filepath.Glob(filepath.Join(filepath.Dir(filepath.Dir(script)), pattern)); len(left) > 0 {
					t.Errorf("left: %s", fmt.Sprint(left))
				}
			}
		})
	}
}
