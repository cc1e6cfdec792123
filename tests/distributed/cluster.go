package main

import (
	"net"
	"net/http"
	"time"

	"github.com/plumbline/plumbline/tests/pictures/scenario"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// cluster is what is played for one.
type cluster struct {
	name, address string
	player        *scenario.Player
}

// startCluster plays a scenario from a moment of it.
func startCluster(t *rig.Scope, name, tale string, from time.Duration) *cluster {
	s, err := scenario.Load(tale)
	t.Check(err)
	c := &cluster{name: name}
	c.player, err = s.Play(testkit.Root(), from)
	t.Check(err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	t.Check(err)
	c.address = listener.Addr().String()
	server := &http.Server{Handler: c.player, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	return c
}

// job is a scrape configuration of Prometheus.
type job struct {
	Name    string   `yaml:"job_name"`
	Classic bool     `yaml:"convert_classic_histograms_to_nhcb,omitempty"`
	Honor   bool     `yaml:"honor_labels"`
	Targets []target `yaml:"static_configs"`
}

type target struct {
	Targets []string          `yaml:"targets"`
	Labels  map[string]string `yaml:"labels,omitempty"`
}

// jobs scrape each exporter of the clusters; with has additional labels for all targets of a cluster, and convert makes
// native histograms of the classic ones of exporters that have no others.
func jobs(clusters []*cluster, convert bool, with func(*cluster) map[string]string) []job {
	byName := map[string]int{}
	var all []job
	for _, c := range clusters {
		for _, one := range c.player.Targets() {
			name := one.Labels["job"]
			at, ok := byName[name]
			if !ok {
				at = len(all)
				byName[name] = at
				all = append(all, job{Name: name, Honor: true})
			}
			all[at].Classic = all[at].Classic || convert && one.Classic
			labels := with(c)
			for label, value := range one.Labels {
				labels[label] = value
			}
			labels["__metrics_path__"] = one.Path
			all[at].Targets = append(all[at].Targets, target{[]string{c.address}, labels})
		}
	}
	return all
}
