package sysbench

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// sysbench reads from its file of options what stands in the connection string, and what it could not read is refused.
func TestOptionsAreRead(t *testing.T) {
	t.Parallel()
	const show = `function prepare() print("<" .. sysbench.opt.mysql_user .. "|" .. sysbench.opt.mysql_password .. "|" .. sysbench.opt.mysql_db .. ">") end`
	folder := t.TempDir()
	lua, options := filepath.Join(folder, "show.lua"), filepath.Join(folder, "options")
	if err := os.WriteFile(lua, []byte(show), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"", "pw", "pw,42", "#pw", "pw 1", `"pw`, `'pw`, `pw=1`, `pw\\`, `grüße`, " pw ", strings.Repeat("x", 237)} {
		lines, _, _, err := Target{"mysql", "shop,1:" + password + "@tcp(db:3306)/my shop"}.options()
		if err != nil {
			t.Errorf("%q: %v", password, err)
			continue
		}
		if err := os.WriteFile(options, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(testkit.Tool(t, "sysbench"), "--config-file="+options, lua, "prepare").CombinedOutput()
		if want := "<shop,1|" + password + "|my shop>"; err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: sysbench reads\n%s%v, want %s", password, out, err, want)
		}
	}
	for _, password := range []string{`hush'"`, "hush\nhush", "hush\x00", strings.Repeat("hush", 60)} {
		_, _, _, err := Target{"mysql", "shop:" + password + "@tcp(db:3306)/shop"}.options()
		if err == nil || !strings.Contains(err.Error(), "its password") || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: %v", password, err)
		}
	}
}
