package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/tests/schematest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// build builds the plugin.
func build(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "kubectl-plumbline")
	if text, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return program
}

// command is the plugin with arguments, without the caller's kubeconfig.
func command(t *testing.T, program string, arguments ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, arguments...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(t.TempDir(), "none"), "PLUMBLINE_PROMETHEUS=", "PLUMBLINE_PROMETHEUS_URL=")
	return cmd
}

// kubeconfig is that of a fake API server, which has these answers and finds nothing else.
func kubeconfig(t *testing.T, answers map[string]string) string {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answers[r.URL.Path] == "" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, answers[r.URL.Path])
	}))
	t.Cleanup(server.Close)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: %q}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`, server.URL)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The exit code is the one that the help documents, standard output has the answer alone, and standard error the error.
func TestExitCodes(t *testing.T) {
	program := build(t)
	prometheus := httptest.NewServer(lab())
	t.Cleanup(prometheus.Close)
	url := "--prometheus-url=" + prometheus.URL
	away := "--prometheus-url=http://" + testkit.FreeAddress(t)
	nodes := func(kernel string) string {
		return "--kubeconfig=" + kubeconfig(t, map[string]string{"/version": `{"gitVersion":"v1.36.0"}`, "/apis/storage.k8s.io/v1/storageclasses": `{}`,
			"/api/v1/nodes": strings.Replace(elsewhere, "6.12.0", kernel, 1)})
	}
	for _, c := range []struct {
		line string
		code int
		kind string // of the document; "" if there is none
		err  string
	}{
		{"why class/r3 -o json " + url, 0, answer.KindWhy, "Prometheus is"},
		{"why class/r3 --output=yaml " + url, 0, "", ""},
		{"why class/r3 " + url, 0, "", ""},
		{"status -o json " + url, 0, answer.KindStatus, ""},
		{"predict server/r1 --to=r3 --windows=4 -o json " + url, 0, answer.KindPredict, ""},
		{"check " + nodes("6.12.0"), 0, "", ""},

		{"verify -o json " + url, exitNo, answer.KindVerify, "broken at: agent"},
		{"verify -o json " + away, exitNo, answer.KindVerify, "broken at: Prometheus"},
		{"predict server/r1 --to=gold --windows=4 -o json " + url, exitNo, answer.KindPredict, "no prediction"},
		{"check " + nodes("5.4.0"), exitNo, "", "not fit: 1 nodes"},
		{"why class/gold -o json " + url, exitNo, "", "nothing is known of it"},
		{"why class/r3 -o json " + away, exitNo, "", "connection refused"},
		{"status -o json", exitNo, "", "no cluster"},

		{"why -o json " + url, exitUsage, "", "target"},
		{"why class/r3 -o xml " + url, exitUsage, "", "xml"},
		{"why tape/x -o json " + url, exitUsage, "", "no kind"},
		{"why ../x -o json " + url, exitUsage, "", "no kind"},
		{"why A_B -o json " + url, exitUsage, "", "no name of a claim"},
		{"why x -n ../y -o json " + url, exitUsage, "", "no name of a namespace"},
		{"why class/r3 --window=-1m " + url, exitUsage, "", "--window"},
		{"why class/r3 --window=9000h " + url, exitUsage, "", "--window"},
		{"status --prometheus=p --kubeconfig=" + kubeconfig(t, nil), exitUsage, "", "NAMESPACE/SERVICE:PORT"},
		{"status --prometheus-url=http://reader:secret@%zz", exitUsage, "", "--prometheus-url"},
		{"predict class/r3 -o json " + url, exitUsage, "", "name a target"},
		{"check -o json " + url, exitUsage, "", "-o"},
		{"explain", exitUsage, "", "explain"},
	} {
		t.Run(strings.ReplaceAll(c.line, url, ""), func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			cmd := command(t, program, strings.Fields(c.line)...)
			cmd.Stdout, cmd.Stderr = &out, &errs
			var exit *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != c.code || !strings.Contains(errs.String(), c.err) || strings.Contains(errs.String(), "secret") {
				t.Errorf("exit code %d, want %d, with %q in:\n%s", got, c.code, c.err, &errs)
			}
			var d struct{ Kind string }
			if c.kind == "" {
				if c.code != 0 && strings.Contains(c.line, "-o json") && out.Len() > 0 {
					t.Errorf("no answer, and yet:\n%s", &out)
				}
				return
			}
			schematest.Valid(t, schematest.Compile(t, answer.Schema), out.Bytes())
			if err := json.Unmarshal(out.Bytes(), &d); err != nil || d.Kind != c.kind {
				t.Errorf("kind %q, want %q: %v", d.Kind, c.kind, err)
			}
		})
	}
}

// --live draws a screen on a terminal, which keys work on and which is as it was afterwards; elsewhere it is text.
func TestLive(t *testing.T) {
	prometheus := httptest.NewServer(slow().Record().Handler(nil))
	defer prometheus.Close()
	program := build(t)
	arguments := []string{"why", "server/r3", "--live", "--window=20s", "--prometheus-url=" + prometheus.URL}

	// script runs a command on a pseudo terminal, and copies what is typed and drawn.
	cmd := command(t, "script", "--quiet", "--return", "--command", "stty cols 120 rows 50; exec "+program+" "+strings.Join(arguments, " "), "/dev/null")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	keys, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	screen, ended := drawn(t, cmd)
	for _, step := range []struct{ want, keys string }{{"replica r3-2 stands out", "\r"}, {"round trip", "q"}} {
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			if text := screen(); !strings.Contains(strings.Join(strings.Fields(text), " "), step.want) {
				return fmt.Errorf("%q is not in %q", step.want, text)
			}
			return nil
		})
		io.WriteString(keys, step.keys)
	}
	if err := <-ended; err != nil {
		t.Errorf("%v: %q", err, screen())
	}
	const alternate, back = "\x1b[?1049h", "\x1b[?1049l"
	if text := screen(); !strings.Contains(text, alternate) || strings.LastIndex(text, back) < strings.LastIndex(text, alternate) {
		t.Errorf("the terminal is not as it was: %q", text)
	}

	cmd = command(t, program, arguments...)
	text, ended := drawn(t, cmd)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if all := text(); strings.Count(all, "means of 20 s") < 2 || strings.Contains(all, "\x1b") {
			return fmt.Errorf("%q", all)
		}
		return nil
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if out, err := command(t, program, append(arguments, "--output=json")...).CombinedOutput(); err == nil || !strings.Contains(string(out), "--live is for people") {
		t.Errorf("%v: %s", err, out)
	}
}

// drawn starts a command, and returns what it has written and how it ends.
func drawn(t *testing.T, cmd *exec.Cmd) (text func() string, ended <-chan error) {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var all strings.Builder
	done := make(chan error, 1)
	go func() {
		b := make([]byte, 4096)
		for {
			n, err := out.Read(b)
			mu.Lock()
			all.Write(b[:n])
			mu.Unlock()
			if err != nil {
				done <- cmd.Wait()
				return
			}
		}
	}()
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return all.String()
	}, done
}
