package lab

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A soak's plan does damage with examples/lab/fault: a killed replica stays away, and a rebuilt one is whole when the
// command ends, whether it was away, ran, or had been stopped.
func TestFaultsOfAPlan(t *testing.T) {
	running(t)
	fault := func(action string) { t.Helper(); faultOf(t, action, "longhorn-r3-replica-3") }
	is := func(want string) func() error {
		return func() error {
			modes, err := replicaModes()
			if err == nil && strings.Join(modes, " ") != want {
				err = fmt.Errorf("the engine's replicas are %v, want %s", modes, want)
			}
			return err
		}
	}
	whole := func() {
		t.Helper()
		if err := is("RW RW RW")(); err != nil {
			t.Fatal(err)
		}
	}
	rebuildLost(t)
	eventually(t, "three replicas", is("RW RW RW"))
	fault("kill")
	eventually(t, "the killed replica is given up", is("RW RW ERR"))
	awaitStatus(t, "longhorn-r3-replica-3", "stopped on purpose")
	fault("rebuild")
	whole()
	fault("rebuild")
	whole()
	fault("stop")
	eventually(t, "the stopped replica is given up", is("RW RW ERR"))
	fault("continue")
	fault("rebuild")
	whole()
}

// faultOf does damage to a replica with examples/lab/fault, or mends it.
func faultOf(t *testing.T, action, replica string) {
	t.Helper()
	cmd := exec.Command(filepath.Join(testkit.Root(), "loadgen", "examples", "lab", "fault"), action, replica)
	cmd.Env = append(cmd.Environ(), "LAB_DIR="+dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("fault %s %s: %v\n%s", action, replica, err, out)
	}
}

// lostReplicas are the numbers of longhorn-r3's replicas that its engine has given up: on a busy machine one may not have
// answered within the engine's 8 s.
func lostReplicas(t *testing.T) []int {
	t.Helper()
	modes, err := replicaModes()
	if err != nil {
		t.Fatal(err)
	}
	var lost []int
	for i, mode := range modes {
		if mode == "ERR" {
			lost = append(lost, i+1)
		}
	}
	return lost
}

// rebuildLost rebuilds the replicas that the engine gave up without the test's doing.
func rebuildLost(t *testing.T) {
	t.Helper()
	for _, n := range lostReplicas(t) {
		t.Logf("the engine has given replica %d up", n)
		faultOf(t, "rebuild", fmt.Sprint("longhorn-r3-replica-", n))
	}
}

// replicaModes queries longhorn-r3's engine for the modes of its replicas, in the replicas' order.
func replicaModes() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(dir, "longhorn.yaml"))
	if err != nil {
		return nil, err
	}
	var file struct {
		Targets []struct {
			Volume, Engine string
			Replicas       []struct{ Address string }
		}
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	for _, target := range file.Targets {
		if target.Volume != volume("longhorn-r3") {
			continue
		}
		out, err := exec.Command(filepath.Join(dir, "bin", "longhorn-engine"), "--url", "http://"+target.Engine, "--volume-name", target.Volume, "ls-replica").CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("ls-replica: %w\n%s", err, out)
		}
		modes := map[string]string{}
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); len(f) >= 2 && strings.HasPrefix(f[0], "tcp://") {
				modes[strings.TrimPrefix(f[0], "tcp://")] = f[1]
			}
		}
		var inOrder []string
		for _, r := range target.Replicas {
			inOrder = append(inOrder, cmp.Or(modes[r.Address], "none"))
		}
		return inOrder, nil
	}
	return nil, fmt.Errorf("no volume %s in longhorn.yaml", volume("longhorn-r3"))
}
