//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/tests/testkit"
)

// tryFor is for how long kubectl plumbline try measures.
const tryFor = 20 * time.Second

// trial is kubectl plumbline try at work.
type trial struct {
	cmd   *exec.Cmd
	keys  io.Writer
	began time.Time
	ended chan error
	// answer is what it wrote to standard output, complete once it has ended.
	answer bytes.Buffer

	mu   sync.Mutex
	text strings.Builder
	// measuring and bar are after what time it began to measure, and had the first bar.
	measuring, bar time.Duration
}

// Write takes what the command prints.
func (r *trial) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text.Write(p)
	for sign, after := range map[string]*time.Duration{"Measuring for": &r.measuring, " ms a ": &r.bar} {
		if *after == 0 && strings.Contains(r.text.String(), sign) {
			*after = time.Since(r.began)
		}
	}
	return len(p), nil
}

func (r *trial) printed() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text.String()
}

// plugin is the command line of kubectl's plugin.
func (n *node) plugin(args ...string) []string {
	program := filepath.Join(testkit.Root(), "build", "linux", runtime.GOARCH, "kubectl-plumbline")
	return append(append([]string{program}, args...), "--kubeconfig="+n.path("etc", "kubeconfig"))
}

// tryCommand measures a claim with our images.
func (n *node) tryCommand(namespace, claim string, more ...string) []string {
	return n.plugin(append([]string{"try", claim, "--namespace=" + namespace, "--registry=" + ourRegistry, "--tag=" + ourTag}, more...)...)
}

// begin starts a command of kubectl's plugin.
func (n *node) begin(command []string) *trial {
	n.t.Helper()
	r := &trial{cmd: exec.Command(command[0], command[1:]...), began: time.Now(), ended: make(chan error, 1)}
	keys, err := r.cmd.StdinPipe()
	n.must(err)
	r.keys, r.cmd.Stdout, r.cmd.Stderr = keys, io.MultiWriter(&r.answer, r), r
	n.must(r.cmd.Start())
	go func() { r.ended <- r.cmd.Wait() }()
	return r
}

// until waits until it has printed something.
func (n *node) until(r *trial, sign string) {
	n.t.Helper()
	testkit.Eventually(n.t, defaultTimeout, func() error {
		select {
		case err := <-r.ended:
			n.t.Fatalf("kubectl plumbline try ended without %q: %v\n%s", sign, err, r.printed())
		default:
		}
		if text := r.printed(); !strings.Contains(text, sign) {
			return fmt.Errorf("no %q: %s", sign, text)
		}
		return nil
	})
}

// measure runs try of a claim to its end, after which nothing is left of it, and reports whether there is an answer.
func (n *node) measure(namespace, claim string, more ...string) (r *trial, ok bool) {
	n.t.Helper()
	r = n.begin(n.tryCommand(namespace, claim, append(more, "--for="+tryFor.String())...))
	if err := <-r.ended; err != nil {
		// What is slow for it has to be mended: the test goes on.
		n.t.Errorf("kubectl plumbline try: %v\n%s", err, r.printed())
		return r, false
	}
	n.keepLine("try.txt", "claim %s/%s: measures after %.1f s, for %v, the first bar after %.1f s, all after %.1f s\n%s", namespace, claim,
		r.measuring.Seconds(), tryFor, r.bar.Seconds(), time.Since(r.began).Seconds(), r.printed())
	n.nothingLeftOf(r)
	return r, true
}

// tries measures a claim: the answer has certain parts.
func (n *node) tries(namespace, claim string, parts []string, more ...string) {
	n.t.Helper()
	r, ok := n.measure(namespace, claim, more...)
	for _, part := range parts {
		if ok && !strings.Contains(r.printed(), part) {
			n.t.Errorf("kubectl plumbline try does not report %q:\n%s", part, r.printed())
		}
	}
}

// agree waits until why blames one of those wanted for a claim's database: try, which knows nothing of the time before, then does so, too.
// Of those wanted an empty field is not compared.
func (n *node) agree(namespace, claim string, wanted []answer.Culprit, more ...string) {
	n.t.Helper()
	command := n.plugin("why", "--namespace="+namespace, claim, "--output=json")
	var installed answer.Finding
	if err := testkit.Await(defaultTimeout, func() error {
		text, err := exec.Command(command[0], command[1:]...).Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		} else if err == nil {
			installed, err = blames(text, wanted)
		}
		return err
	}); err != nil {
		// What is slow has to be mended: the test goes on.
		n.t.Errorf("kubectl plumbline why: %v", err)
		return
	}
	r, ok := n.measure(namespace, claim, append(more, "--output=json")...)
	if !ok {
		return
	}
	try, err := blames(r.answer.Bytes(), wanted)
	if err != nil {
		n.t.Errorf("kubectl plumbline try: %v", err)
	}
	n.keepLine("agree.txt", "%s: %s\nwhy, of the installed stack: %s\ntry, of %v:                 %s\n", n.t.Name(), installed.Verdict.Reason, installed.Words, tryFor, try.Words)
}

// blames returns the finding of a document of why's or try's, and an error unless it blames one of those wanted first.
func blames(document []byte, wanted []answer.Culprit) (f answer.Finding, err error) {
	var list answer.Why
	if err := json.Unmarshal(document, &list); err != nil {
		return f, err
	}
	if len(list.Items) != 1 {
		return f, fmt.Errorf("%d findings: %s", len(list.Items), document)
	}
	f = list.Items[0]
	for _, c := range f.Verdict.Culprits {
		if c.Reason != f.Verdict.Reason {
			continue
		}
		if c.Reason == why.Grown {
			c.Reason = why.Largest // for who knows no past
		}
		if slices.ContainsFunc(wanted, func(w answer.Culprit) bool {
			return c.Reason == w.Reason && (w.Layer == "" || w.Layer == c.Layer) && (w.Replica == "" || w.Replica == c.Replica)
		}) {
			return f, nil
		}
	}
	return f, fmt.Errorf("the verdict is %+v, want one of %+v: %s", f.Verdict, wanted, f.Words)
}

// madeJob is where it reports what it made.
var madeJob = regexp.MustCompile(`Made Job (\S+) in`)

// nothingLeftOf waits until nothing is left of what a try has made.
func (n *node) nothingLeftOf(r *trial) {
	n.t.Helper()
	made := madeJob.FindAllStringSubmatch(r.printed(), -1)
	if len(made) == 0 {
		n.t.Errorf("no Job was made:\n%s", r.printed())
	}
	for _, job := range made {
		testkit.Eventually(n.t, 2*defaultTimeout, func() error {
			left, err := n.try("get", "jobs,pods", "--all-namespaces", "--selector=app.kubernetes.io/name=plumbline-try", "--output=name")
			if err == nil && strings.Contains(left, job[1]) {
				err = errors.New("left of kubectl plumbline try: " + left)
			}
			return err
		})
	}
}

// tryEnds ends tries before their time, by an interrupt and, on a terminal, by a key: there is an answer, and nothing is left.
func (n *node) tryEnds(namespace, claim string) {
	n.t.Helper()
	command := n.tryCommand(namespace, claim, "--for=5m")
	// script runs a command on a pseudo terminal, and copies what is typed and drawn.
	onTerminal := []string{"script", "--quiet", "--return", "--command", "stty cols 160 rows 50; TERM=xterm exec " + strings.Join(append(command, "--live"), " "), "/dev/null"}
	for what, one := range map[string]struct {
		command []string
		end     func(*trial) error
	}{
		"an interrupt": {command, func(r *trial) error { return r.cmd.Process.Signal(os.Interrupt) }},
		"a key":        {onTerminal, func(r *trial) error { _, err := io.WriteString(r.keys, "q"); return err }},
	} {
		r := n.begin(one.command)
		n.until(r, " ms a ")
		signaled := time.Now()
		n.must(one.end(r))
		if err := <-r.ended; err != nil {
			n.t.Errorf("ended by %s: %v\n%s", what, err, r.printed())
		}
		if text := r.printed(); !strings.Contains(text, "Means of the last") {
			n.t.Errorf("ended by %s, and no answer:\n%s", what, text)
		}
		n.keepLine("try.txt", "ended by %s: the first bar after %.1f s, all over %.1f s after the end", what, r.bar.Seconds(), time.Since(signaled).Seconds())
		n.nothingLeftOf(r)
	}
}

// tryKilled kills a try, and returns a check that the API server removes what it made, which takes minutes.
func (n *node) tryKilled(namespace, claim string) (removed func()) {
	n.t.Helper()
	r := n.begin(n.tryCommand(namespace, claim, "--for="+tryFor.String()))
	n.until(r, "Measuring for")
	n.must(r.cmd.Process.Kill())
	<-r.ended
	return func() { n.nothingLeftOf(r) }
}
