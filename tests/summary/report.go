package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// mostRepeated is of how many failed tests the output is printed once more at the end; the others are named.
const mostRepeated = 20

// event is a line of `go test -json`: cmd/test2json's TestEvent, or go build's BuildEvent.
type event struct {
	Action, Package, Test, Output string
	// ImportPath names what was built, in a BuildEvent; FailedBuild what could not be, in a package's end.
	ImportPath, FailedBuild string
	Elapsed                 float64
}

// test is a test or subtest.
type test struct {
	name    string
	result  string // pass, fail, skip, or nothing while it runs
	seconds float64
	output  text
}

// pkg is a package that runs.
type pkg struct {
	name   string
	tests  []*test
	byName map[string]*test
	output text
}

// failure is what failed, with what it said: a test, or a package outside its tests.
type failure struct {
	pkg    string
	test   *test
	output *text
}

func (f failure) String() string {
	switch {
	case f.test == nil:
		return f.pkg
	case f.test.result == "":
		return fmt.Sprintf("%s (did not end) in %s", f.test.name, f.pkg)
	}
	return fmt.Sprintf("%s (%.2f s) in %s", f.test.name, f.test.seconds, f.pkg)
}

// report adds up a run.
type report struct {
	out             io.Writer
	ci              bool
	running         map[string]*pkg
	builds          map[string]*text
	ended           int
	passed, skipped int
	failed          int
	failures        []failure
	skips           []string
}

func newReport(out io.Writer, ci bool) *report {
	return &report{out: out, ci: ci, running: map[string]*pkg{}, builds: map[string]*text{}}
}

// read takes all events. Lines that are none, as those of a test's own child that writes past its test, are passed on.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		s, err := lines.ReadString('\n')
		if s != "" {
			var e event
			if json.Unmarshal([]byte(s), &e) != nil || e.Action == "" {
				fmt.Fprint(r.out, s)
			} else {
				r.take(e)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e event) {
	switch {
	case e.Action == "build-output":
		if r.builds[e.ImportPath] == nil {
			r.builds[e.ImportPath] = &text{}
		}
		r.builds[e.ImportPath].write(e.Output)
	case e.Package == "":
	case e.Test == "":
		r.packageEvent(e)
	default:
		p := r.pkg(e.Package)
		t := p.byName[e.Test]
		if t == nil {
			t = &test{name: e.Test}
			p.tests, p.byName[e.Test] = append(p.tests, t), t
		}
		switch e.Action {
		case "output":
			t.output.write(e.Output)
		case "pass", "fail", "skip":
			t.result, t.seconds = e.Action, e.Elapsed
			if e.Action != "fail" {
				t.output = text{} // nobody will read it
			}
		}
	}
}

func (r *report) pkg(name string) *pkg {
	p := r.running[name]
	if p == nil {
		p = &pkg{name: name, byName: map[string]*test{}}
		r.running[name] = p
	}
	return p
}

func (r *report) packageEvent(e event) {
	p := r.pkg(e.Package)
	switch e.Action {
	case "output":
		p.output.write(e.Output)
	case "pass", "fail", "skip":
		r.ended++
		delete(r.running, e.Package)
		r.close(p, e)
	}
}

// inner tells which tests have subtests: these are what is counted.
func (p *pkg) inner() map[string]bool {
	inner := map[string]bool{}
	for _, t := range p.tests {
		for name := t.name; ; {
			at := strings.LastIndexByte(name, '/')
			if at < 0 {
				break
			}
			name = name[:at]
			inner[name] = true
		}
	}
	return inner
}

// close counts a package's tests and prints what `go test` prints of it.
func (r *report) close(p *pkg, e event) {
	p.output.flush()
	inner := p.inner()
	var failed []failure
	for _, t := range p.tests {
		t.output.flush()
		switch {
		case t.result == "skip":
			r.skipped++
			r.skips = append(r.skips, t.name+" in "+p.name)
		case t.result == "pass":
			if !inner[t.name] {
				r.passed++
			}
		// A test without an end was running when its process ended.
		case t.result == "fail" || e.Action == "fail":
			failed = append(failed, failure{p.name, t, &t.output})
			if !inner[t.name] || !p.failedWithin(t.name) {
				r.failed++
			}
		}
	}
	if e.Action == "fail" && len(failed) == 0 {
		r.failed++
		output := &p.output
		if build := r.builds[e.FailedBuild]; build != nil {
			build.flush()
			output = build
		}
		failed = append(failed, failure{p.name, nil, output})
		if output != &p.output {
			r.print(output.lines(kept))
		}
	}
	for _, f := range failed {
		if f.test != nil {
			r.print(indented(f.test.name, f.output.lines(kept)))
		}
	}
	for _, l := range p.output.lines(kept) {
		if e.Action == "fail" || strings.HasPrefix(l, "ok  \t") || strings.HasPrefix(l, "?   \t") {
			r.print([]string{l})
		}
	}
	r.failures = append(r.failures, failed...)
}

// failedWithin tells whether a subtest of a test failed, or was running at the end.
func (p *pkg) failedWithin(name string) bool {
	return slices.ContainsFunc(p.tests, func(t *test) bool {
		return strings.HasPrefix(t.name, name+"/") && (t.result == "fail" || t.result == "")
	})
}

// indented gives a subtest's verdict the indentation it has without -json.
func indented(name string, lines []string) []string {
	for i, l := range lines {
		if strings.HasPrefix(l, "--- FAIL: ") {
			lines[i] = strings.Repeat("    ", strings.Count(name, "/")) + l
		}
	}
	return lines
}

func (r *report) print(lines []string) {
	for _, l := range lines {
		fmt.Fprintln(r.out, l)
	}
}

// end prints what failed once more, and the counts. Its error says why the run is no success.
func (r *report) end() error {
	for _, p := range r.running {
		r.close(p, event{Action: "fail"})
	}
	for i, f := range r.failures {
		if i == mostRepeated {
			fmt.Fprintf(r.out, "\n... the output of %d more is above ...\n", len(r.failures)-i)
			break
		}
		if i == 0 {
			fmt.Fprintln(r.out, "\nWhat failed, once more:")
		}
		fmt.Fprintf(r.out, "\n%s\n", f)
		for _, l := range f.output.lines(repeated) {
			if !strings.HasPrefix(l, "--- FAIL: ") {
				r.print([]string{l})
			}
		}
	}
	fmt.Fprintln(r.out)
	for _, f := range r.failures {
		fmt.Fprintln(r.out, "failed:", f)
	}
	for _, s := range r.skips {
		fmt.Fprintln(r.out, "skipped:", s)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, r.skipped)
	switch {
	case r.failed > 0:
		return fmt.Errorf("%d of %d tests failed", r.failed, r.passed+r.failed+r.skipped)
	case r.ended == 0:
		return errors.New("no package was tested")
	case r.ci && r.skipped > 0:
		return fmt.Errorf("%d tests were skipped, which CI does not allow", r.skipped)
	}
	return nil
}
