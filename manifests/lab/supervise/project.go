package supervise

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"

	"go.yaml.in/yaml/v3"
)

// Conditions of process-compose's depends_on.
const (
	healthy  = "process_healthy"
	logReady = "process_log_ready"
)

// Project is what the gate reads of the lab's process-compose file.
type Project struct {
	Processes map[string]ProcessConfig `yaml:"processes"`
}

// ProcessConfig is one process of it.
type ProcessConfig struct {
	Shutdown struct {
		Signal int `yaml:"signal"`
	} `yaml:"shutdown"`
	Lab Lab `yaml:"x-lab"`
}

// Lab is what the lab adds to a process of process-compose.
type Lab struct {
	// Needs are the conditions under which it can be started, by the names of other processes: the
	// conditions of process-compose's depends_on.
	Needs map[string]string `yaml:"needs"`
	// LiesOn names processes that it cannot outlive: a start of one of them, but the first, ends it
	// before, and it is started again after it.
	LiesOn []string `yaml:"lies_on"`
	// Fresh names processes that have to be restarted before it starts again.
	Fresh []string `yaml:"fresh"`
	// Stale is a file that is created at each start that nobody requested: the process has missed something meanwhile.
	// Processes that need this one do not wait for it while the file exists.
	Stale string `yaml:"stale"`
}

// stale reports whether the process's stale file exists.
func (c ProcessConfig) stale() bool {
	if c.Lab.Stale == "" {
		return false
	}
	_, err := os.Stat(c.Lab.Stale)
	return err == nil
}

func (c ProcessConfig) signal() syscall.Signal {
	if c.Shutdown.Signal == 0 {
		return syscall.SIGTERM
	}
	return syscall.Signal(c.Shutdown.Signal)
}

func readProject(dir string) (*Project, error) {
	text, err := os.ReadFile(projectPath(dir))
	if err != nil {
		return nil, err
	}
	var p Project
	if err := yaml.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("%s: %w", projectPath(dir), err)
	}
	return &p, nil
}

// Check refuses names of processes that are not there, and processes that lie on themselves.
func (p *Project) Check() error {
	for name, c := range p.Processes {
		for _, other := range slices.Concat(c.Lab.LiesOn, c.Lab.Fresh, slices.Collect(maps.Keys(c.Lab.Needs))) {
			if _, ok := p.Processes[other]; !ok {
				return fmt.Errorf("process %s names %s, which does not exist", name, other)
			}
		}
		if slices.Contains(p.lyingOn(name), name) {
			return fmt.Errorf("process %s lies on itself", name)
		}
	}
	return nil
}

// lyingOn lists the processes that lie on one, directly or not, those that others lie on last.
func (p *Project) lyingOn(name string) []string {
	var all []string
	var visit func(string)
	visit = func(on string) {
		for _, other := range slices.Sorted(maps.Keys(p.Processes)) {
			if slices.Contains(p.Processes[other].Lab.LiesOn, on) && !slices.Contains(all, other) {
				visit(other)
				if !slices.Contains(all, other) {
					all = append(all, other)
				}
			}
		}
	}
	visit(name)
	return all
}

// below lists the processes that one lies on, directly or not.
func (p *Project) below(name string) (all []string) {
	for _, on := range p.Processes[name].Lab.LiesOn {
		all = append(append(all, on), p.below(on)...)
	}
	return all
}
