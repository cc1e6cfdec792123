// Command security writes the rows of what is known of security: the outcome of the tests in this folder, and what
// govulncheck reports on our dependencies.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/testkit"
)

// govulncheck is the tool as a package to run; the version is one that still builds with the
// modules of an older day.
const govulncheck = "golang.org/x/vuln/cmd/govulncheck@v1.1.4"

// shows is what a test of this folder shows.
var shows = map[string]string{
	"TestSecretsStayInside":    "a marked password and a marked query's text are in no metric, page, log, result, report or command line of agent, loadgen (canary, pgbench, soak, report), nor in postgres_exporter's metrics and log",
	"TestAgentsCapabilities":   "the agent as nobody with BPF, DAC_READ_SEARCH, PERFMON, SYS_PTRACE measures with all collectors and holds no other capability; the DaemonSet adds the same. With these, whoever takes it over may read every file and every process's memory of the node, and write none",
	"TestBlockiosCapabilities": "ebpf_exporter as nobody with BPF and PERFMON measures and holds no other; the DaemonSet adds the same. With these, whoever takes it over may read the kernel's memory, and so any process's, by a BPF program",
	"TestHostileNeighbour":     "a process of nobody named postgres (version files that are links to /etc/shadow and secrets, FIFOs, devices, 1 GiB; folders and names that are no UTF-8; a root of its own), and 10,000 short-lived ones: nothing of these secrets on the page or in the log, the agent lives, its page is valid, its memory and series are flat, and another server's statements are counted exactly",
	"TestImagesContent":        "six images, for amd64 and arm64, hold nothing but the programs and files of testdata/images.txt: no shell, no library",
}

func main() {
	app := kingpin.New("security", "Runs the tests of this folder and govulncheck, and writes their rows.\n\n"+
		"Needs root, as the tests do. Its rows go to build/results/security.jsonl. Example:\n  security")
	app.HelpFlag.Short('h')
	folder := app.Flag("folder", "Where the rows go.").Default("build/results").String()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	if err := record(*folder); err != nil {
		fmt.Fprintln(os.Stderr, "security:", err)
		os.Exit(1)
	}
}

func record(folder string) (err error) {
	out, err := rows.OpenProgram(folder, "security")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	outcome, err := test()
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(shows)) {
		result, ok := outcome[name]
		if !ok {
			return fmt.Errorf("no test %s", name)
		}
		out.Add("Security", name, "shows", shows[name], "result", result)
		if result == "fail" {
			err = errors.Join(err, fmt.Errorf("%s failed", name))
		}
	}
	out.Add("Security", "govulncheck", "shows", "known vulnerabilities in what our programs call", "result", vulnerabilities())
	return err
}

// test runs this folder's tests and returns the outcome of each.
func test() (map[string]string, error) {
	cmd := exec.Command("go", "test", "-count=1", "-json", "./tests/security")
	cmd.Dir, cmd.Stderr = testkit.Root(), os.Stderr
	text, runErr := cmd.Output() // a failed test is an outcome, too
	outcome := map[string]string{}
	lines := json.NewDecoder(bytes.NewReader(text))
	for lines.More() {
		var e struct{ Action, Test, Output string }
		if err := lines.Decode(&e); err != nil {
			return nil, errors.Join(runErr, err)
		}
		switch {
		case e.Action == "output":
			fmt.Fprint(os.Stderr, e.Output)
		case e.Test != "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip"):
			outcome[e.Test] = e.Action
		}
	}
	if len(outcome) == 0 {
		return nil, errors.Join(runErr, errors.New("no test ran"))
	}
	return outcome, nil
}

// vulnerabilities runs govulncheck over all programs; without its database there is nothing to compare with, which it
// reports.
func vulnerabilities() string {
	cmd := exec.Command("go", "run", govulncheck, "./...")
	cmd.Dir = testkit.Root()
	text, err := cmd.CombinedOutput()
	if found := regexp.MustCompile(`Vulnerability #\d+: (\S+)`).FindAllSubmatch(text, -1); len(found) > 0 {
		var ids []string
		for _, f := range found {
			ids = append(ids, string(f[1]))
		}
		return fmt.Sprintf("%d: %s", len(ids), strings.Join(ids, ", "))
	}
	if bytes.Contains(text, []byte("fetching vulnerabilities")) {
		return "NOT KNOWN: its database cannot be reached from this machine"
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		return "NOT KNOWN, it could not run: " + lines[max(0, len(lines)-2)] + " " + lines[len(lines)-1]
	}
	return "none"
}
