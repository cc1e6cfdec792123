package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// The distributions' kernels that are in use most, and the newest: everything works there and is exact.
func TestKernels(t *testing.T) {
	testkit.Long(t, "boots two emulated machines")
	for _, tool := range []string{"qemu-system-x86_64", "depmod", "xz", "mkfs.ext4", "lvcreate", "iscsid", "initdb", "ebpf_exporter", "longhorn-engine"} {
		testkit.Tool(t, tool)
	}
	testkit.NeedRoot(t)
	if out, err := exec.Command("dpkg", "--print-architecture").Output(); err != nil || string(out) != "amd64\n" {
		testkit.Skip(t, "needs a Debian machine with amd64: "+string(out))
	}
	agent := filepath.Join(t.TempDir(), "agent")
	build := exec.Command("go", "build", "-o", agent, "./exporters/agent")
	build.Dir = testkit.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
	// Few statements: the emulator is slow, and what is lost is lost of few, too.
	m := matrix{agent: agent, statements: 40, replica: true, folder: t.TempDir(), atOnce: 2,
		guest: guest{arch: "amd64", memory: 2048, cpus: 2, timeout: 40 * time.Minute}}
	// The oldest and the newest: each has ways of its own to watch sockets. Those between are make kernels'.
	all, err := m.run(t.Context(), []string{"6.1", "newest"})
	if err != nil {
		t.Fatal(err)
	}
	printMatrix(os.Stdout, all)
	for _, one := range all {
		for _, f := range one.failed() {
			t.Errorf("%s: %s", one.kernel.release, f)
		}
		if one.err != nil {
			console, _ := os.ReadFile(filepath.Join(m.folder, one.kernel.release, "console.log"))
			t.Logf("%s", console[max(0, len(console)-4000):])
			continue
		}
		// Since Linux 7.0 a task may be preempted within a program at a tracepoint.
		if want := one.kernel.numbers[0] >= 7; one.outcome.Backups != want {
			t.Errorf("%s: the agent's programs have backup programs: %v, want %v", one.kernel.release, one.outcome.Backups, want)
		}
		for name, f := range one.outcome.Features() {
			if !f.Works {
				t.Errorf("%s: %s does not work: %s", one.kernel.release, name, f.Why)
			}
		}
	}
}
