package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/manifests/lab/supervise"
)

func lab(t *testing.T, files string) *Lab {
	return &Lab{
		Files: files, Repo: "/repo", Dir: t.TempDir(), Exe: "/bin/plumbline-lab", PostgresBin: "/pg",
		Node: "n1", PortBase: 29090, Databases: []string{"postgresql"}, Rate: 40, CanaryRate: 5, Clients: 4, Scale: 10, Interval: DefaultInterval, Without: map[string]string{},
	}
}

// Every class of the project renders, and its processes wait for each other without a gap.
func TestProjectIsWhole(t *testing.T) {
	names, err := classNames("..")
	if err != nil || len(names) < 3 {
		t.Fatalf("classes: %v %v", names, err)
	}
	l := lab(t, "..")
	l.Databases = append(l.Databases, "mariadb")
	if _, err := l.Load(names, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(l.Dir, "process-compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var project struct {
		Processes map[string]struct {
			Command   string         `yaml:"command"`
			DependsOn map[string]any `yaml:"depends_on"`
			Log       string         `yaml:"log_location"`

			Availability struct{ Restart string }
		} `yaml:"processes"`
	}
	if err := yaml.Unmarshal(text, &project); err != nil {
		t.Fatal(err)
	}
	var relations supervise.Project
	if err := yaml.Unmarshal(text, &relations); err != nil {
		t.Fatal(err)
	}
	if err := relations.Check(); err != nil {
		t.Error(err)
	}
	for name, p := range project.Processes {
		if p.Command == "" || p.Log == "" {
			t.Errorf("%s lacks a command or a log", name)
		}
		if strings.Contains(p.Command, "[[") || strings.Contains(p.Command, "<no value>") {
			t.Errorf("%s: a template was not filled in: %s", name, p.Command)
		}
		if p.Availability.Restart != "always" || !strings.Contains(p.Command, " gate "+name+" ||") {
			t.Errorf("%s is not started again when it ends: %+v, %s", name, p.Availability, p.Command)
		}
	}
	for _, c := range l.Classes {
		for _, part := range []string{"postgresql", "pgbench", "canary", "postgres-exporter", "mariadb", "sysbench", "mariadb-canary", "mysqld-exporter"} {
			if _, ok := project.Processes[c.Name+"-"+part]; !ok {
				t.Errorf("class %s has no %s", c.Name, part)
			}
		}
	}
	seen := map[string]string{}
	for _, c := range l.Classes {
		for _, r := range c.Backend.Replicas {
			if other := seen[r.Address]; r.Address != "" && other != "" {
				t.Errorf("%s and %s share the address %s", r.Name, other, r.Address)
			}
			seen[r.Address] = r.Name
		}
	}
}

// A backend's own files are written beside its volume, and its engine's exporter is scraped.
func TestBackendFilesAndMetrics(t *testing.T) {
	l := lab(t, "..")
	if _, err := l.Load([]string{"local", "ceph-rbd-r1", "gluster-r3"}, nil); err != nil {
		t.Fatal(err)
	}
	if err := l.Write(); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"classes/ceph-rbd-r1/ceph.conf":   "mon host = v2:127.17.2.200:3300",
		"classes/gluster-r3/glusterd.vol": "bind-address 127.17.3.200",
		"prometheus.yml":                  "127.17.2.201:9283",
	} {
		text, err := os.ReadFile(filepath.Join(l.Dir, name))
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q (%v)", name, want, err)
		}
	}
	c := Class{BackendFile: "b", Lab: l, Name: "x", Backend: Backend{Files: map[string]string{"../elsewhere": ""}}}
	if err := c.writeFiles(); err == nil || !strings.Contains(err.Error(), "outside the class's folder") {
		t.Errorf("a file outside the class's folder: %v", err)
	}
}

// What the machine refuses leaves out only the classes that need it, with the reason.
func TestRefusedClassIsLeftOut(t *testing.T) {
	l := lab(t, "..")
	left, err := l.Load([]string{"local", "longhorn-r3"}, map[string]string{"fuse": "no FUSE here"})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Classes) != 1 || l.Classes[0].Name != "local" || !strings.Contains(left["longhorn-r3"], "no FUSE here") {
		t.Errorf("classes %v, left out %v", l.Classes, left)
	}
	if _, err := lab(t, "..").Load([]string{"longhorn-r3"}, map[string]string{"fuse": "no FUSE here"}); err == nil {
		t.Error("a lab without any class was accepted")
	}
}

// The default lab has PostgreSQL alone; canaries can be left out.
func TestDatabasesAreChosen(t *testing.T) {
	l := lab(t, "..")
	l.CanaryRate = 0
	if _, err := l.Load([]string{"local"}, nil); err != nil {
		t.Fatal(err)
	}
	project, err := l.project()
	if err != nil {
		t.Fatal(err)
	}
	for name := range project["processes"].(map[string]any) {
		if strings.Contains(name, "mariadb") || strings.Contains(name, "canary") {
			t.Errorf("there is a process %s", name)
		}
	}
	for want, databases := range map[string][]string{
		"mariadb postgresql": {"postgresql", "oracle"},
		"twice":              {"postgresql", "postgresql"},
		"must have":          {"mariadb"},
	} {
		l := lab(t, "..")
		l.Databases = databases
		if _, err := l.Load([]string{"local"}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want an error with %q", databases, err, want)
		}
	}
}

// The lab's agent traces single statements only if that is enabled.
func TestAgentTraces(t *testing.T) {
	for _, traces := range []bool{false, true} {
		l := lab(t, "..")
		l.Trace = traces
		if _, err := l.Load([]string{"local"}, nil); err != nil {
			t.Fatal(err)
		}
		project, err := l.project()
		if err != nil {
			t.Fatal(err)
		}
		command := project["processes"].(map[string]any)["agent"].(map[string]any)["command"].(string)
		if got := slices.Contains(strings.Fields(command), "--collector.trace"); got != traces {
			t.Errorf("traces: %v; the agent's command: %s", traces, command)
		}
	}
}

// A class file with a mistake is refused with its name and field.
func TestBadClassFiles(t *testing.T) {
	for name, c := range map[string]struct{ class, backend, want string }{
		"unknown field":   {"storageclass: x\nbackend: b\nreplica: 3\n", "backend: b\n", "field replica not found"},
		"other name":      {"storageclass: y\nbackend: b\n", "backend: b\n", `want the file's name "x"`},
		"no such backend": {"storageclass: x\nbackend: c\n", "backend: b\n", "c.yaml"},
		"no parameter":    {"storageclass: x\nbackend: b\n", "backend: b\nengine: '[[.Parameters.size]]'\n", `no entry for key "size"`},
		"bad replicas":    {"storageclass: x\nbackend: b\nparameters: {replicas: many}\n", "backend: b\nengine: '[[len .Replicas]]'\n", `parameters.replicas is "many"`},
		"bad size":        {"storageclass: x\nbackend: b\nparameters: {size: big}\n", "backend: b\nengine: '[[.Parameters.size | bytes]]'\n", `size "big"`},
	} {
		t.Run(name, func(t *testing.T) {
			files := t.TempDir()
			for path, text := range map[string]string{"classes/x.yaml": c.class, "backends/b.yaml": c.backend, "databases/postgresql.yaml": ""} {
				path = filepath.Join(files, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			_, err := lab(t, files).Load([]string{"x"}, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("want an error with %q, have %v", c.want, err)
			}
		})
	}
}

func TestPortsDoNotClash(t *testing.T) {
	l := lab(t, "..")
	if _, err := l.Load([]string{"local", "longhorn-r1", "longhorn-r3"}, nil); err != nil {
		t.Fatal(err)
	}
	ports := l.Ports()
	if want := len(ownPorts) + len(l.Classes)*len(classExporters); len(ports) != want {
		t.Errorf("%d different ports for %d listeners", len(ports), want)
	}
	for p := range ports {
		if p < l.PortBase || p >= l.PortBase+100 {
			t.Errorf("port %d is outside the range that LAB_PORT_BASE begins", p)
		}
	}
	if _, err := l.Classes[0].Port("no such"); err == nil || !slices.Contains(classExporters, "pgbench") {
		t.Error("a port for an unknown exporter")
	}
}

// A slow machine's lab probes less often, and waits longer for an answer.
func TestProbesFollowTheInterval(t *testing.T) {
	for interval, want := range map[model.Duration][2]int{DefaultInterval: {1, 10}, model.Duration(15 * time.Second): {7, 70}, model.Duration(time.Second): {1, 10}} {
		l := lab(t, "..")
		l.Interval = interval
		names, err := classNames("..")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.Load(names, nil); err != nil {
			t.Fatal(err)
		}
		project, err := l.project()
		if err != nil {
			t.Fatal(err)
		}
		probes := 0
		for name, p := range project["processes"].(map[string]any) {
			probe, ok := p.(map[string]any)["readiness_probe"].(map[string]any)
			if !ok {
				continue
			}
			probes++
			if got := [2]int{probe["period_seconds"].(int), probe["timeout_seconds"].(int)}; got != want {
				t.Errorf("interval %s: %s is probed every %d s for %d s, want %v", interval, name, got[0], got[1], want)
			}
		}
		if probes < 10 {
			t.Errorf("only %d processes have a probe", probes)
		}
	}
}

// A replica's host and data port are taken from addresses of both families.
func TestReplicaAddress(t *testing.T) {
	for address, want := range map[string][2]string{"127.25.2.1:9502": {"127.25.2.1", "127.25.2.1:9503"}, "[::1]:9502": {"::1", "[::1]:9503"}} {
		r := Replica{Address: address}
		if r.Host() != want[0] || r.DataAddress() != want[1] {
			t.Errorf("%s: host %s, data at %s, want %q", address, r.Host(), r.DataAddress(), want)
		}
	}
}
