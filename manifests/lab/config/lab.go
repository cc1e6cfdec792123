package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// ownPorts are the lab's own listeners, in the order of their ports from Lab.PortBase on.
var ownPorts = []string{"prometheus", "alertmanager", "grafana", "node_exporter", "ebpf_exporter", "agent", "longhorn_exporter"}

// firstClassPort is where, relative to Lab.PortBase, the blocks of the classes begin.
const firstClassPort = 20

// classExporters are the listeners a class can have, in the order of their ports.
var classExporters = []string{"pgbench", "postgres_exporter", "canary", "mariadb", "mysqld_exporter", "mariadb-canary", "sysbench"}

// Lab is a whole lab: what the user chose and where things are.
type Lab struct {
	// Files is the folder with classes/, backends/, databases/ and monitoring/.
	Files string
	// Repo is the root of the checkout; rules/, dashboards/ and exporters/ are in it.
	Repo string
	// Dir is the lab's state, on the disk that is measured; removed by down.
	Dir string
	// Exe is this program.
	Exe string
	// PostgresBin holds initdb and postgres.
	PostgresBin string
	// Node is the value of the node label.
	Node string
	// PortBase is the first of the loopback ports the lab listens on.
	PortBase int
	// Databases are the engines every class has a server of, by the names of the files in databases/.
	Databases []string
	// Rate is the load's fixed rate in transactions a second, for each class.
	Rate int
	// CanaryRate is the canaries' fixed rate in transactions a second; 0: there are none.
	CanaryRate float64
	// Clients is the load's number of connections, for each class.
	Clients int
	// Interval is the time between Prometheus' scrapes, and between its rules' evaluations.
	Interval model.Duration
	// Trace enables the agent's collector trace, which follows single statements through the layers.
	Trace bool
	// Scale is pgbench's scale factor.
	Scale int
	// GrafanaHome is Grafana's home folder, empty if it is not installed.
	GrafanaHome, GrafanaServer string
	// Without names the parts this machine refuses (bpf), with the reason.
	Without map[string]string
	// LeftOut names the classes this machine refuses, with the reason.
	LeftOut map[string]string
	// Classes are the selected classes the machine can run.
	Classes []*Class
}

// Bin is where the lab's copies of its programs are: the originals may lie in a home folder
// that unprivileged users cannot enter.
func (l *Lab) Bin() string { return filepath.Join(l.Dir, "bin") }

// Unprivileged is what starts a process as nobody, with no capability and no way to get one.
func (l *Lab) Unprivileged() string {
	return "setpriv --reuid=nobody --regid=nogroup --clear-groups --inh-caps=-all --ambient-caps=-all --bounding-set=-all --no-new-privs"
}

// DefaultPortBase is where a machine's first lab listens.
const DefaultPortBase = 29090

// Volume names a class's volume. What observes one lab sees the replicas of all on the machine:
// two labs, which have different ports, must not have volumes of one name.
func (l *Lab) Volume(class string) string {
	if l.PortBase == DefaultPortBase {
		return "lab-" + class
	}
	return fmt.Sprintf("lab%d-%s", l.PortBase, class)
}

// Port returns one of the lab's own ports; names are those of the processes.
func (l *Lab) Port(name string) (int, error) {
	offset := slices.Index(ownPorts, name)
	if offset < 0 {
		return 0, fmt.Errorf("no port is set aside for %q", name)
	}
	return l.PortBase + offset, nil
}

// ProbeMiB is the size of the file that each class's read probe reads. It is written first, which a small lab on a
// slow machine would wait for longer than for all else.
func (l *Lab) ProbeMiB() int { return max(16, min(128, 128*l.Scale/10)) }

// DefaultInterval is short, because a lab is watched live.
const DefaultInterval = model.Duration(2 * time.Second)

// Live is how far back live words look: ten scrapes, and as many commits as a mean needs.
func (l *Lab) Live() time.Duration { return 10 * time.Duration(l.Interval) }

// LiveTable is how far back live tables look, which show every change.
func (l *Lab) LiveTable() time.Duration { return l.Live() / 2 }

// CollectorTimeout is how long an exporter's collector may take: less than a scrape.
func (l *Lab) CollectorTimeout() model.Duration { return l.Interval * 3 / 4 }

// DatabaseInterval is the time between scrapes of the databases' own exporters, which cost them statements.
func (l *Lab) DatabaseInterval() model.Duration {
	return max(l.Interval, model.Duration(5*time.Second))
}

// URL returns the address of one of the lab's own servers.
func (l *Lab) URL(name string) string {
	port, err := l.Port(name)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("http://127.0.0.1:%d", port)
}

// Ports lists every port the lab will listen on, with the process that listens.
func (l *Lab) Ports() map[int]string {
	ports := map[int]string{}
	for i, name := range ownPorts {
		ports[l.PortBase+i] = name
	}
	for _, c := range l.Classes {
		for _, e := range classExporters {
			p, _ := c.Port(e)
			ports[p] = c.Name + "'s " + e
		}
	}
	return ports
}

// Engines lists the classes whose storage backend answers by itself.
func (l *Lab) Engines() []*Class {
	var engines []*Class
	for _, c := range l.Classes {
		if c.Backend.Engine != "" {
			engines = append(engines, c)
		}
	}
	return engines
}

// Scraped lists the classes whose storage backend has an exporter of its own.
func (l *Lab) Scraped() []*Class {
	var scraped []*Class
	for _, c := range l.Classes {
		if c.Backend.Metrics != "" {
			scraped = append(scraped, c)
		}
	}
	return scraped
}

// Load reads the class files named and renders their backends. refused maps what the machine does not allow (mount,
// loop, fuse, nvme) to the reason. A class that needs it is left out, and is in the returned map with the reason.
func (l *Lab) Load(names []string, refused map[string]string) (map[string]string, error) {
	if len(names) == 0 {
		return nil, fmt.Errorf("LAB_CLASSES is empty; name at least one class")
	}
	if err := l.checkDatabases(); err != nil {
		return nil, err
	}
	leftOut := map[string]string{}
	for _, name := range names {
		if slices.ContainsFunc(l.Classes, func(c *Class) bool { return c.Name == name }) {
			return nil, fmt.Errorf("class %q is named twice in LAB_CLASSES", name)
		}
		c, err := readClass(l.Files, name)
		if err != nil {
			return nil, err
		}
		c.Lab, c.Index = l, len(l.Classes)
		path := filepath.Join(l.Files, "backends", c.BackendFile+".yaml")
		if err := renderYAML(path, c, &c.Backend); err != nil {
			return nil, err
		}
		if need := firstRefused(c.Backend.Needs, refused); need != "" {
			leftOut[name] = fmt.Sprintf("needs %s: %s", need, refused[need])
			continue
		}
		l.Classes = append(l.Classes, c)
	}
	if len(l.Classes) == 0 {
		return nil, fmt.Errorf("this machine allows none of the classes %s: %s", strings.Join(names, " "), strings.Join(slices.Sorted(maps.Values(leftOut)), "; "))
	}
	return leftOut, nil
}

func firstRefused(needs []string, refused map[string]string) string {
	for _, n := range needs {
		if refused[n] != "" {
			return n
		}
	}
	return ""
}

// Write renders everything the lab's processes read into Dir.
func (l *Lab) Write() error {
	project, err := l.project()
	if err != nil {
		return err
	}
	routes, err := l.alertmanager()
	if err != nil {
		return err
	}
	files := map[string]any{
		"alertmanager.yml":     routes,
		"process-compose.yaml": project,
		"volumes.yaml":         l.identity(),
		"longhorn.yaml":        l.longhornTargets(),
	}
	for name, content := range files {
		if err := writeYAML(filepath.Join(l.Dir, name), content); err != nil {
			return err
		}
	}
	for _, c := range l.Classes {
		if err := c.writeFiles(); err != nil {
			return err
		}
	}
	for from, to := range map[string]string{
		"prometheus.yml":   "prometheus.yml",
		"datasources.yaml": "provisioning/datasources/prometheus.yaml",
		"dashboards.yaml":  "provisioning/dashboards/plumbline.yaml",
	} {
		text, err := render(filepath.Join(l.Files, "monitoring", from), l)
		if err != nil {
			return err
		}
		to = filepath.Join(l.Dir, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
