package replicas

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func line(address, mode string) string {
	return `time="2026-11-22T10:00:00Z" level=info msg="Setting replica tcp://` + address + ` to mode ` + mode + `" func=x` + "\n"
}

// An engine starts without the replicas that have missed writes, and never with a stale one while
// there is a better one; without any it takes the one that fell out last.
func TestSelect(t *testing.T) {
	const a, b, c = "127.16.1.1:10000", "127.16.1.2:10000", "127.16.1.3:10000"
	for name, one := range map[string]struct {
		log, marked, want, markedAfter, fallen string
	}{
		"first life":               {"", "", "a b c", "", ""},
		"one fell out":             {line(b, "ERR"), "", "a c", "b", "b"},
		"one was rebuilt":          {line(b, "ERR") + line(b, "WO") + line(b, "RW"), "", "a b c", "", ""},
		"one is being rebuilt":     {line(b, "ERR") + line(b, "WO"), "b", "a c", "b", ""},
		"marked by its own start":  {"", "c", "a b", "c", ""},
		"all fell out, b the last": {line(c, "ERR") + line(a, "ERR") + line(b, "ERR"), "a", "b", "a c", "c"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			v := Volume{Log: filepath.Join(dir, "log")}
			if err := os.WriteFile(v.Log, []byte("something else\n"+one.log), 0o600); err != nil {
				t.Fatal(err)
			}
			letters := map[string]string{a: "a", b: "b", c: "c"}
			var all []Replica
			for _, address := range []string{a, b, c} {
				r := Replica{Address: address, Mark: filepath.Join(dir, letters[address])}
				if strings.Contains(one.marked, letters[address]) {
					if err := os.WriteFile(r.Mark, nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				all = append(all, r)
			}
			good, fallen, err := v.Select(all)
			if err != nil {
				t.Fatal(err)
			}
			var got, still, out []string
			for _, r := range fallen {
				out = append(out, letters[r.Address])
			}
			for _, r := range good {
				got = append(got, letters[r.Address])
			}
			for _, r := range all {
				if marked(r) {
					still = append(still, letters[r.Address])
				}
			}
			if g, s := strings.Join(got, " "), strings.Join(still, " "); g != one.want || s != one.markedAfter || strings.Join(out, " ") != one.fallen {
				t.Errorf("starts with %q, marked are %q, newly %q; want %q, %q, %q", g, s, out, one.want, one.markedAfter, one.fallen)
			}
		})
	}
}
