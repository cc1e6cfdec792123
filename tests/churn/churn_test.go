package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A short run, as fast as it goes: every statement is counted, and nothing is left behind.
func TestChurn(t *testing.T) {
	testkit.NeedBPF(t)
	agent := filepath.Join(t.TempDir(), "agent")
	build := exec.Command("go", "build", "-o", agent, "./exporters/agent")
	build.Dir = testkit.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
	var out strings.Builder
	samples, err := run(t.Context(), options{
		agent: agent, agentFlags: []string{"--no-collector.replica", "--no-collector.volume"},
		initdb: testkit.Tool(t, "initdb"), postgres: testkit.Tool(t, "postgres"),
		duration: 8 * time.Second, interval: 2 * time.Second, connects: 200, connections: 5, statements: 500,
	}, &out)
	t.Logf("\n%s", &out)
	if err != nil {
		t.Fatal(err)
	}
	if err := verdict(samples); err != nil {
		t.Error(err)
	}
	if samples[len(samples)-1].made == 0 {
		t.Error("no statement was made")
	}
}
