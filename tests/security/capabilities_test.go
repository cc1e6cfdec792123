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

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/kubetest"
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
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "docs", "install", "agent.md"))
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

// deployed returns the capabilities that the chart adds for the container of a DaemonSet.
func deployed(t *testing.T, program, container string) []string {
	t.Helper()
	chart := filepath.Join(testkit.Root(), "manifests", "chart")
	text, err := kubetest.Helm(t, nil, "template", "plumbline", chart, "--set=image.registry=registry.example.org", "--show-only=templates/"+program+".yaml")
	if err != nil {
		t.Fatal(text)
	}
	file := filepath.Join(t.TempDir(), program+".yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, o := range kubetest.Read(t, file) {
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		for _, c := range containers {
			of := c.(map[string]any)
			if of["name"] != container {
				continue
			}
			if drop, _, _ := unstructured.NestedStringSlice(of, "securityContext", "capabilities", "drop"); !slices.Equal(drop, []string{"ALL"}) {
				t.Errorf("%s: %s does not drop ALL", o.GetName(), container)
			}
			add, _, _ := unstructured.NestedStringSlice(of, "securityContext", "capabilities", "add")
			return slices.Sorted(slices.Values(add))
		}
	}
	t.Fatalf("templates/%s.yaml has no container %s", program, container)
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

// The agent measures with exactly the capabilities of its page and its DaemonSet, and holds no more.
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
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
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

// ebpf_exporter measures with exactly the capabilities of its DaemonSet, and holds no more.
func TestBlockiosCapabilities(t *testing.T) {
	testkit.NeedBPF(t)
	testkit.Tool(t, "ebpf_exporter")
	want := deployed(t, "blockio", "ebpf-exporter")
	if !slices.Equal(want, []string{"BPF", "PERFMON"}) {
		t.Errorf("the DaemonSet adds %v, docs/understand/disks.md has BPF and PERFMON", want)
	}
	url, p := rig.StartBlockio(t)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
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
