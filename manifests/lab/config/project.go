package config

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"
)

// processes is the part of a process-compose file that the lab's templates write.
type processes struct {
	Processes map[string]any `yaml:"processes"`
}

// plainLog makes process-compose write its processes' lines as they come.
var plainLog = map[string]any{"no_color": true, "disable_json": true, "no_metadata": true, "flush_each_line": true}

// project puts the processes of all classes and of the monitoring together. Each gets a log
// file, the lab's folder as its own, time to end before it is killed, and another life whenever it
// ends, before which package supervise's gate runs.
func (l *Lab) project() (map[string]any, error) {
	all := map[string]any{}
	add := func(path string, parts map[string]any) error {
		for name, p := range parts {
			process, ok := p.(map[string]any)
			if !ok {
				return fmt.Errorf("%s: process %s is not a mapping", path, name)
			}
			if _, twice := all[name]; twice {
				return fmt.Errorf("%s: there is another process %s", path, name)
			}
			process["working_dir"] = l.Dir
			process["log_location"] = filepath.Join(l.Dir, "logs", name+".log")
			process["log_configuration"] = plainLog
			if process["shutdown"] == nil {
				process["shutdown"] = map[string]any{"signal": 15, "timeout_seconds": 10}
			}
			process["availability"] = map[string]any{"restart": "always", "backoff_seconds": 1}
			process["command"] = fmt.Sprintf("%s --directory=%s gate %s || exit\n%s", l.Exe, l.Dir, name, process["command"])
			process["x-lab"] = needs(process)
			if probe, ok := process["readiness_probe"].(map[string]any); ok {
				l.probeTimes(probe)
			}
			all[name] = process
		}
		return nil
	}
	for _, c := range l.Classes {
		if err := add(c.BackendFile, c.Backend.Processes); err != nil {
			return nil, err
		}
		for _, name := range l.Databases {
			d, err := c.database(name)
			if err != nil {
				return nil, err
			}
			if err := add("databases/"+name+".yaml", d.Processes); err != nil {
				return nil, err
			}
		}
	}
	path := filepath.Join(l.Files, "monitoring", "processes.yaml")
	var p processes
	if err := renderYAML(path, l, &p); err != nil {
		return nil, err
	}
	if err := add(path, p.Processes); err != nil {
		return nil, err
	}
	return map[string]any{
		"version":               "0.5",
		"is_strict":             true,
		"disable_env_expansion": true,
		"log_location":          filepath.Join(l.Dir, "logs", "process-compose.log"),
		"log_configuration":     plainLog,
		"processes":             all,
	}, nil
}

// probeTimes gives a readiness probe its times. They follow the lab's interval: on a slow machine, probes as
// frequent as on a fast one are killed before they answer, and take the time that they wait for. A process
// that waits for another is not ready for as long as it takes; the supervisor would end it for good.
func (l *Lab) probeTimes(probe map[string]any) {
	period := max(1, int(time.Duration(l.Interval/2).Seconds()))
	probe["period_seconds"] = period
	probe["timeout_seconds"] = 10 * period
	probe["failure_threshold"] = 1_000_000
}

// needs hands a process's conditions of depends_on over to the gate, which checks the present life of
// another process where process-compose checks its first, and gives up a process whose other has
// ended meanwhile. What is left of depends_on is the order of the end.
func needs(process map[string]any) map[string]any {
	lab, ok := process["x-lab"].(map[string]any)
	if !ok {
		lab = map[string]any{}
	}
	on, _ := process["depends_on"].(map[string]any)
	conditions := map[string]any{}
	for name, c := range on {
		if condition, ok := c.(map[string]any); ok {
			conditions[name] = condition["condition"]
		}
		on[name] = map[string]any{"condition": "process_started"}
	}
	lab["needs"] = conditions
	return lab
}

// alertmanager is what the values for kube-prometheus-stack have: routing and inhibition are defined there.
func (l *Lab) alertmanager() (any, error) {
	path := filepath.Join(l.Files, "..", "kube-prometheus-stack", "alertmanager.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var values struct {
		Alertmanager struct {
			Config map[string]any `yaml:"config"`
		} `yaml:"alertmanager"`
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if len(values.Alertmanager.Config) == 0 {
		return nil, fmt.Errorf("%s has no alertmanager.config", path)
	}
	return values.Alertmanager.Config, nil
}

// identity is the agent's file of volumes: on one machine it has what the Kubernetes API returns on a cluster.
func (l *Lab) identity() any {
	type volume struct {
		Mountpoint            string `yaml:"mountpoint,omitempty"`
		Directory             string `yaml:"directory,omitempty"`
		Volume                string `yaml:"volume"`
		Namespace             string `yaml:"namespace"`
		PersistentVolumeClaim string `yaml:"persistentvolumeclaim"`
		StorageClass          string `yaml:"storageclass"`
		Backend               string `yaml:"backend"`
		Pod                   string `yaml:"pod"`
	}
	var volumes []volume
	for _, c := range l.Classes {
		v := volume{
			Mountpoint: c.Mount(), Volume: c.Volume(), Namespace: "lab", PersistentVolumeClaim: "data-" + c.Name,
			StorageClass: c.Name, Backend: c.Backend.Name, Pod: c.Name + "-postgresql",
		}
		if c.Backend.SharesDevice {
			v.Mountpoint, v.Directory = "", v.Mountpoint
		}
		volumes = append(volumes, v)
	}
	return map[string]any{"volumes": volumes}
}

// longhornTargets is longhorn_exporter's file of engines, where no Kubernetes API names them.
func (l *Lab) longhornTargets() any {
	type target struct {
		Volume   string    `yaml:"volume"`
		Engine   string    `yaml:"engine"`
		Replicas []Replica `yaml:"replicas"`
	}
	targets := []target{}
	for _, c := range l.Engines() {
		targets = append(targets, target{c.Volume(), c.Backend.Engine, c.Backend.Replicas})
	}
	return map[string]any{"targets": targets}
}
