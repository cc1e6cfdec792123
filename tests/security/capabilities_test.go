package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// capabilities by the names that manifests have.
var capabilities = map[string]uintptr{
	"BPF": unix.CAP_BPF, "PERFMON": unix.CAP_PERFMON, "SYS_PTRACE": unix.CAP_SYS_PTRACE, "DAC_READ_SEARCH": unix.CAP_DAC_READ_SEARCH,
}

// documented reads the set from the example in the agent's page.
func documented(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "exporters", "agent", "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`--ambient-caps=-all,(\S+) plumbline-agent`).FindSubmatch(text)
	if m == nil {
		t.Fatal("the agent's page has no example with --ambient-caps")
	}
	names := strings.Split(strings.ToUpper(strings.ReplaceAll(string(m[1]), "+", "")), ",")
	slices.Sort(names)
	return names
}

// deployed reads what a DaemonSet adds for a container.
func deployed(t *testing.T, base, container string) []string {
	t.Helper()
	path := filepath.Join(testkit.Root(), "manifests", "kubernetes", "base", base, "daemonset.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Spec struct {
			Template struct {
				Spec struct {
					Containers []struct {
						Name            string `yaml:"name"`
						SecurityContext struct {
							Capabilities struct{ Add, Drop []string } `yaml:"capabilities"`
						} `yaml:"securityContext"`
					} `yaml:"containers"`
				} `yaml:"spec"`
			} `yaml:"template"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(text, &d); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, c := range d.Spec.Template.Spec.Containers {
		if c.Name == container {
			if !slices.Equal(c.SecurityContext.Capabilities.Drop, []string{"ALL"}) {
				t.Errorf("%s: %s does not drop ALL", path, container)
			}
			return slices.Sorted(slices.Values(c.SecurityContext.Capabilities.Add))
		}
	}
	t.Fatalf("%s has no container %s", path, container)
	return nil
}

// held reads the capabilities that a process and each of its threads really has.
func held(t *testing.T, pid int) []string {
	t.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	if err != nil || len(threads) == 0 {
		t.Fatalf("threads of %d: %v", pid, err)
	}
	var union uint64
	for _, path := range threads {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // a thread that has ended
		}
		for _, set := range []string{"CapEff", "CapPrm", "CapInh", "CapAmb"} {
			m := regexp.MustCompile(set + `:\s+([0-9a-f]+)`).FindSubmatch(text)
			if m == nil {
				t.Fatalf("%s has no %s", path, set)
			}
			bits, err := strconv.ParseUint(string(m[1]), 16, 64)
			if err != nil {
				t.Fatal(err)
			}
			union |= bits
		}
	}
	var names []string
	for bit := range 64 {
		if union>>bit&1 == 0 {
			continue
		}
		name := fmt.Sprint(bit)
		for n, number := range capabilities {
			if number == uintptr(bit) {
				name = n
			}
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// The agent measures with exactly what its page and its DaemonSet say, and holds no more.
func TestAgentsCapabilities(t *testing.T) {
	testkit.NeedBPF(t)
	want := documented(t)
	if got := deployed(t, "agent", "agent"); !slices.Equal(got, want) {
		t.Errorf("the DaemonSet adds %v, the page has %v", got, want)
	}
	var ambient []uintptr
	for _, name := range want {
		number, ok := capabilities[name]
		if !ok {
			t.Fatalf("the page has a capability %s that this test does not know", name)
		}
		ambient = append(ambient, number)
	}
	// Where nobody may run it.
	dir, err := os.MkdirTemp("/var/tmp", "plumbline-security-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "agent")
	if out, err := exec.Command("install", "-m", "755", testkit.Tool(t, "plumbline-agent"), program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	address := testkit.FreeAddress(t)
	cmd := exec.Command(program, "--web.listen-address="+address)
	const nobody = 65534
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, AmbientCaps: ambient}
	p := rig.Start(t, cmd)
	testkit.Eventually(t, agentDeadline, func() error {
		m, err := agentproc.Scrape(context.Background(), "http://"+address+"/metrics")
		if err != nil {
			return err
		}
		for _, collector := range []string{"query", "replica", "volume"} {
			if m.Sum("plumbline_scrape_collector_success", "collector", collector) != 1 {
				return fmt.Errorf("collector %s does not work:\n%s", collector, p.Log)
			}
		}
		return nil
	})
	if got := held(t, p.PID()); !slices.Equal(got, want) {
		t.Errorf("the agent holds %v, want %v", got, want)
	}
}

// ebpf_exporter measures with exactly what its DaemonSet says, and holds no more.
func TestBlockiosCapabilities(t *testing.T) {
	testkit.NeedBPF(t)
	testkit.Tool(t, "ebpf_exporter")
	want := deployed(t, "blockio", "ebpf-exporter")
	if !slices.Equal(want, []string{"BPF", "PERFMON"}) {
		t.Errorf("the DaemonSet adds %v, exporters/blockio/README.md has BPF and PERFMON", want)
	}
	url, p := rig.StartBlockio(t)
	testkit.Eventually(t, agentDeadline, func() error {
		m, err := agentproc.Scrape(context.Background(), url)
		if err == nil && m["ebpf_exporter_blkio_total_seconds"] == nil {
			err = fmt.Errorf("it measures nothing:\n%s", p.Log)
		}
		return err
	})
	if got := held(t, p.PID()); !slices.Equal(got, want) {
		t.Errorf("ebpf_exporter holds %v, want %v", got, want)
	}
}
