package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// module is a module with every kind of test, each in a package of its own.
var module = map[string]string{
	"go.mod": "module example\n\ngo 1.24\n",
	"fine/fine_test.go": `package fine
import ("fmt"; "testing")
func TestFine(t *testing.T) { fmt.Println("nobody reads this"); t.Run("a", func(t *testing.T) {}); t.Run("b", func(t *testing.T) {}) }
func TestAlone(t *testing.T) {}
`,
	"none/none.go": "package none\n",
	"fails/fails_test.go": `package fails
import ("fmt"; "os"; "testing")
func TestInner(t *testing.T) {
	t.Log("prepared")
	t.Run("good", func(t *testing.T) {})
	t.Run("bad", func(t *testing.T) {
		for i := range 20000 {
			fmt.Fprintf(os.Stderr, "time=%d level=error msg=removed\n", i)
			if i == 10000 { t.Error("the message\nin two lines") }
		}
	})
}
func TestPasses(t *testing.T) { fmt.Println("nobody reads this") }
`,
	"panics/panics_test.go": `package panics
import "testing"
func TestPanics(t *testing.T) { panic("ouch") }
`,
	"exits/exits_test.go": `package exits
import ("fmt"; "os"; "testing")
func TestExits(t *testing.T) { fmt.Print("leaves "); os.Exit(3) }
`,
	"late/late_test.go": `package late
import ("testing"; "time")
func TestInTime(t *testing.T) {}
func TestLate(t *testing.T) { t.Run("deep", func(t *testing.T) { t.Log("waits"); time.Sleep(time.Hour) }) }
`,
	"compiles/not_test.go": `package compiles
import "testing"
func TestNot(t *testing.T) { undefined() }
`,
	"vets/not_test.go": `package vets
import ("fmt"; "testing")
func TestNot(t *testing.T) { fmt.Printf("%d\n", "text") }
`,
	"main/main_test.go": `package main
import ("fmt"; "os"; "testing")
func TestMain(m *testing.M) { fmt.Println("cannot begin"); os.Exit(1) }
func TestNever(t *testing.T) {}
`,
	"skips/skips_test.go": `package skips
import "testing"
func TestSkips(t *testing.T) { t.Skip("nothing here") }
`,
}

// run tests packages of the module, and returns what the summary prints, what of it is at its end, and what it ends with.
func run(t *testing.T, ci bool, packages ...string) (printed, last string, err error) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range module {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", append([]string{"test", "-json", "-p", "1", "-count=1", "-timeout", "10s"}, packages...)...)
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, _ := cmd.Output() // its exit code is that of the tests
	var b bytes.Buffer
	r := newReport(&b, ci)
	if err := r.read(bytes.NewReader(out)); err != nil {
		t.Fatal(err)
	}
	live := b.Len()
	err = r.end()
	return b.String()[:live], b.String()[live:], err
}

func wants(t *testing.T, where, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s lacks %q:\n%s", where, part, text)
		}
	}
}

func TestAllIsWell(t *testing.T) {
	printed, last, err := run(t, true, "./fine", "./none")
	if err != nil {
		t.Error(err)
	}
	wants(t, "what is printed meanwhile", printed, "ok  \texample/fine\t", "?   \texample/none\t[no test files]\n")
	if strings.Count(printed, "\n") != 2 {
		t.Errorf("a run without a failure is a line a package, not\n%s", printed)
	}
	if last != "\n3 passed, 0 failed, 0 skipped\n" {
		t.Errorf("the end is %q", last)
	}
}

func TestFailuresAreSaidAtTheEnd(t *testing.T) {
	printed, last, err := run(t, true, "./...")
	if err == nil || err.Error() != "7 of 14 tests failed" {
		t.Errorf("the end's error is %v", err)
	}
	if !strings.HasSuffix(last, "\n6 passed, 7 failed, 1 skipped\n") {
		t.Errorf("the end is\n%s", last)
	}
	wants(t, "what is printed meanwhile", printed, "ok  \texample/fine\t", "FAIL\texample/fails\t", "FAIL\texample/compiles [build failed]\n",
		"\n--- FAIL: TestInner (", "\n    --- FAIL: TestInner/bad (", "--- FAIL: TestPanics (")
	wants(t, "the end", last,
		"TestInner/bad (", "_test.go:9: the message\n        in two lines\n", "msg=removed\n", "... 19997 more lines like this but for numbers, left out ...",
		"panic: ouch", "leaves \n", ": waits\n", "panic: test timed out after 10s", "undefined: undefined", "wrong type string", "cannot begin\n",
		"failed: TestInner (", "failed: TestInner/bad (", "failed: TestPanics (", "failed: TestExits (did not end) in example/exits\n",
		"failed: TestLate/deep (did not end) in example/late\n", "failed: example/compiles\n", "failed: example/vets\n", "failed: example/main\n",
		"skipped: TestSkips in example/skips\n")
	for _, text := range []string{printed, last} {
		if strings.Contains(text, "nobody reads this") {
			t.Errorf("what passed is printed:\n%s", text)
		}
		if n := strings.Count(text, "msg=removed"); n != alike {
			t.Errorf("%d lines of chatter", n)
		}
	}
}

func TestSkippedFailsInCIOnly(t *testing.T) {
	for ci, want := range map[bool]string{true: "1 tests were skipped, which CI does not allow", false: "<nil>"} {
		if _, _, err := run(t, ci, "./skips"); fmt.Sprint(err) != want {
			t.Errorf("in CI %v: %v", ci, err)
		}
	}
}

func TestNothingTestedIsNoSuccess(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out, false)
	if err := r.read(strings.NewReader("go: no such module\n")); err != nil {
		t.Fatal(err)
	}
	if err := r.end(); err == nil || !strings.Contains(out.String(), "go: no such module\n") {
		t.Errorf("ended with %v after\n%s", err, out.String())
	}
}

// A run that is cut off, as when go test itself is killed, has failed.
func TestCutOff(t *testing.T) {
	var out bytes.Buffer
	r := newReport(&out, false)
	if err := r.read(strings.NewReader(`{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestX"}
{"Action":"output","Package":"p","Test":"TestX","Output":"was here\n"}
`)); err != nil {
		t.Fatal(err)
	}
	if err := r.end(); err == nil || !strings.Contains(out.String(), "failed: TestX (did not end) in p\n") || !strings.Contains(out.String(), "was here\n") {
		t.Errorf("ended with %v after\n%s", err, out.String())
	}
}

func TestOutputIsBounded(t *testing.T) {
	var output text
	for i := range 100_000 {
		output.write(fmt.Sprintf("    x_test.go:1: line %d\n", i))
	}
	if held := len(output.first) + len(output.last); held > kept.first+2*kept.last {
		t.Errorf("%d lines are held", held)
	}
	for _, b := range []bound{kept, repeated} {
		lines := output.lines(b)
		if len(lines) != b.first+b.last+1 || lines[0] != "    x_test.go:1: line 0" || lines[len(lines)-1] != "    x_test.go:1: line 99999" ||
			lines[b.first] != fmt.Sprintf("... %d lines left out ...", 100_000-b.first-b.last) {
			t.Errorf("%d lines, at the gap %q", len(lines), lines[b.first])
		}
	}
	output = text{}
	output.write(strings.Repeat("é", 10_000))
	output.flush()
	if l := output.lines(kept); len(l) != 1 || len(l[0]) > longestLine+50 || !strings.HasSuffix(l[0], "(19500 bytes more)") {
		t.Errorf("a long line is %q", l)
	}
}
