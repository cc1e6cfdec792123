package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/promapi"
)

// jobs of the lab whose exposition grows with volumes and nodes, and whether Prometheus makes
// native histograms of their classic ones. postgres_exporter is a server's own affair.
var jobs = map[string]bool{"node-exporter": false, "ebpf-exporter": true, "plumbline-agent": false, "longhorn-exporter": false}

// shape is what the jobs say of a node, and of each volume on it.
type shape struct {
	class   string
	devices []string // of the class's volume
	node    map[string][]*dto.MetricFamily
	volume  map[string][]*dto.MetricFamily
	// perNode and perVolume count series.
	perNode, perVolume int
}

func readShape(ctx context.Context, lab, class string) (*shape, error) {
	prometheus, err := promapi.At(lab)
	if err != nil {
		return nil, err
	}
	s := &shape{class: class, node: map[string][]*dto.MetricFamily{}, volume: map[string][]*dto.MetricFamily{}}
	volumes, err := prometheus.Vector(ctx, "plumbline_volume_info")
	if err != nil {
		return nil, fmt.Errorf("the lab (make lab-up): %w", err)
	}
	var others []string
	for _, v := range volumes {
		if string(v.Metric["storageclass"]) == class {
			s.devices = append(s.devices, string(v.Metric["device"]))
		} else {
			others = append(others, string(v.Metric["storageclass"]), string(v.Metric["device"]))
		}
	}
	if len(s.devices) == 0 {
		return nil, fmt.Errorf("%s has no volume of class %s: start the lab with it", lab, class)
	}
	targets, err := prometheus.Targets(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range targets.Active {
		job := string(t.Labels["job"])
		if _, ok := jobs[job]; !ok {
			continue
		}
		families, err := agentproc.Scrape(ctx, t.ScrapeURL)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.ScrapeURL, err)
		}
		s.split(job, families, others)
	}
	if len(s.volume) < 3 {
		return nil, errors.New("the lab's agent, ebpf_exporter and longhorn_exporter do not all tell of the volume")
	}
	return s, nil
}

// split sorts a job's metrics into those of the class's volume, and of the node; the metrics
// of other classes are left out.
func (s *shape) split(job string, families agentproc.Metrics, others []string) {
	for _, f := range families {
		var node, volume []*dto.Metric
		for _, m := range f.Metric {
			switch {
			case slices.ContainsFunc(m.Label, s.names):
				volume = append(volume, m)
			case !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool {
				return slices.ContainsFunc(others, func(o string) bool { return l.GetValue() == o || len(o) > 6 && strings.Contains(l.GetValue(), o) })
			}):
				node = append(node, m)
			}
		}
		part := func(m []*dto.Metric) *dto.MetricFamily {
			return &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit, Metric: m}
		}
		if len(node) > 0 {
			s.node[job] = append(s.node[job], part(node))
		}
		if len(volume) > 0 {
			s.volume[job] = append(s.volume[job], part(volume))
		}
	}
}

// names tells whether a label is of the class's volume.
func (s *shape) names(l *dto.LabelPair) bool {
	return strings.Contains(l.GetValue(), s.class) || l.GetName() == "device" && slices.Contains(s.devices, l.GetValue())
}
