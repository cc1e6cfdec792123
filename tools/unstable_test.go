package tools

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// unstableBox is a copy of the script with a sysroot that fails as often as it should, and then makes a root of one program.
func unstableBox(t *testing.T, failures string) (script string, environment []string) {
	t.Helper()
	testkit.Tool(t, "dpkg-query")
	box := t.TempDir()
	script = filepath.Join(box, "checkout", "tools", "unstable")
	write(t, script, read(t, "unstable"))
	write(t, filepath.Join(box, "checkout", "tools", "sysroot"), `#!/bin/sh
echo "$@" >>`+box+`/calls
[ "$(wc -l <`+box+`/calls)" -gt `+failures+` ] || exit 1
for root; do case $root in /*) break ;; esac done
mkdir -p "$root/usr/sbin" "$root/var/lib/dpkg/info"
printf '#!/bin/sh\necho mysqld\n' >"$root/usr/sbin/mysqld"
chmod 755 "$root/usr/sbin/mysqld"
cat >"$root/var/lib/dpkg/status" <<END
Package: mysql-server-core
Status: install ok installed
Architecture: all
Maintainer: Nobody <nobody@localhost>
Version: 9.0-1
Description: none
END
`)
	return script, []string{"PLUMBLINE_CACHE=" + filepath.Join(box, "cache"), "PLUMBLINE_RETRY=0"}
}

// What Debian's mirrors do not give at once is tried again; what is there is not fetched again.
func TestUnstable(t *testing.T) {
	script, environment := unstableBox(t, "2")
	if out, code := run(t, environment, script, "--list"); code != 0 || out != "mariadb - missing\nmysql - missing\npostgresql-19 - missing\nvalkey - missing\n" {
		t.Errorf("before: exit code %d, %q", code, out)
	}
	if out, code := run(t, environment, script, "mysql"); code != 0 || out != "mysql: 9.0-1 of Debian's unstable suite\n" {
		t.Fatalf("exit code %d: %s", code, out)
	}
	checkout := filepath.Dir(filepath.Dir(script))
	if out, _ := run(t, nil, filepath.Join(checkout, "build", "mysql", "usr", "sbin", "mysqld")); out != "mysqld\n" {
		t.Errorf("it prints %q", out)
	}
	if out, code := run(t, environment, script, "mysql"); code != 0 || out != "" {
		t.Errorf("the second time: exit code %d, %q", code, out)
	}
	if out, _ := run(t, environment, script, "--list"); out != "mariadb - missing\nmysql 9.0-1 there\npostgresql-19 - missing\nvalkey - missing\n" {
		t.Errorf("it lists %q", out)
	}
	list := filepath.Join(filepath.Dir(checkout), "calls")
	calls := read(t, list)
	if strings.Count(calls, "\n") != 3 || strings.Count(calls, "--suite=sid --with-dependencies ") != 3 {
		t.Errorf("of tools/sysroot: %s", calls)
	}
	run(t, environment, script, "postgresql-19")
	if text := read(t, list); !strings.Contains(text, "--suite=sid,experimental --with-dependencies --without=debconf,") {
		t.Errorf("of tools/sysroot for what is in experimental: %s", text)
	}
	if out, code := run(t, environment, script, "mysql", "nonsense"); code == 0 || !strings.Contains(out, "no server nonsense; there are: ") {
		t.Errorf("of another name: exit code %d, %q", code, out)
	}
}

// Without a mirror it is an error, and nothing is linked.
func TestUnstableUnreachable(t *testing.T) {
	script, environment := unstableBox(t, "3")
	if out, code := run(t, environment, script, "mysql"); code == 0 || !strings.Contains(out, "cannot get mysql from Debian's unstable suite") {
		t.Errorf("exit code %d: %s", code, out)
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(filepath.Dir(script)), "build", "mysql")); err == nil {
		t.Error("a link to nothing is left")
	}
}
