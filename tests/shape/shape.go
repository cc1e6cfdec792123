// Package shape is what a running lab's exporters export for one volume of three replicas and for a node: to multiply
// it, and to count what one more costs.
package shape

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

// Jobs of the lab whose exposition grows with volumes and nodes, and whether Prometheus makes
// native histograms of their classic ones. postgres_exporter is a server's own affair.
var Jobs = map[string]bool{"node-exporter": false, "ebpf-exporter": true, "plumbline-agent": false, "longhorn-exporter": false}

// Shape is what the jobs export for a node, and for each volume on it.
type Shape struct {
	Class   string
	Devices []string // of the class's volume
	// Node and Volume are metric families by job.
	Node, Volume map[string][]*dto.MetricFamily
}

// Series counts those of some jobs as Prometheus stores them: a histogram is one.
func Series(jobs map[string][]*dto.MetricFamily) (n int) {
	for _, families := range jobs {
		for _, f := range families {
			n += len(f.Metric)
		}
	}
	return n
}

// OfServer are the parts of the volume's families that name its database server, and Rest are the others.
func (s *Shape) OfServer() (server, rest map[string][]*dto.MetricFamily) {
	return by("server", s.Volume)
}

// OfDevices are the parts of the node's families that name a block device, and Rest are the others. A machine has as
// many devices as it has, those of others among them.
func (s *Shape) OfDevices() (devices, rest map[string][]*dto.MetricFamily) {
	return by("device", s.Node)
}

// by splits families into what has a label, and what has not.
func by(label string, all map[string][]*dto.MetricFamily) (with, without map[string][]*dto.MetricFamily) {
	with, without = map[string][]*dto.MetricFamily{}, map[string][]*dto.MetricFamily{}
	for job, families := range all {
		for _, f := range families {
			has := func(m *dto.Metric) bool {
				return slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == label })
			}
			with[job] = append(with[job], part(f, slices.DeleteFunc(slices.Clone(f.Metric), func(m *dto.Metric) bool { return !has(m) })))
			without[job] = append(without[job], part(f, slices.DeleteFunc(slices.Clone(f.Metric), has)))
		}
	}
	return with, without
}

// Values counts the values that a label has.
func Values(label string, jobs map[string][]*dto.MetricFamily) int {
	values := map[string]bool{}
	for _, families := range jobs {
		for _, f := range families {
			for _, m := range f.Metric {
				for _, l := range m.Label {
					if l.GetName() == label {
						values[l.GetValue()] = true
					}
				}
			}
		}
	}
	return len(values)
}

// part is a family with some of its metrics.
func part(f *dto.MetricFamily, m []*dto.Metric) *dto.MetricFamily {
	return &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit, Metric: m}
}

// Read reads it from a lab's Prometheus and the exporters that this scrapes.
func Read(ctx context.Context, lab, class string) (*Shape, error) {
	prometheus, err := promapi.At(lab)
	if err != nil {
		return nil, err
	}
	s := &Shape{Class: class, Node: map[string][]*dto.MetricFamily{}, Volume: map[string][]*dto.MetricFamily{}}
	volumes, err := prometheus.Vector(ctx, "plumbline_volume_info")
	if err != nil {
		return nil, fmt.Errorf("the lab (make lab-up): %w", err)
	}
	var others []string
	for _, v := range volumes {
		if string(v.Metric["storageclass"]) == class {
			s.Devices = append(s.Devices, string(v.Metric["device"]))
		} else {
			others = append(others, string(v.Metric["storageclass"]), string(v.Metric["device"]))
		}
	}
	if len(s.Devices) == 0 {
		return nil, fmt.Errorf("%s has no volume of class %s: start the lab with it", lab, class)
	}
	targets, err := prometheus.Targets(ctx)
	if err != nil {
		return nil, err
	}
	for _, t := range targets.Active {
		job := string(t.Labels["job"])
		if _, ok := Jobs[job]; !ok {
			continue
		}
		families, err := agentproc.Scrape(ctx, t.ScrapeURL)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.ScrapeURL, err)
		}
		s.split(job, families, others)
	}
	if len(s.Volume) < 3 {
		return nil, errors.New("the lab's agent, ebpf_exporter and longhorn_exporter do not all report the volume")
	}
	return s, nil
}

// split sorts a job's metrics into those of the class's volume, and of the node; the metrics
// of other classes are left out.
func (s *Shape) split(job string, families agentproc.Metrics, others []string) {
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
		if len(node) > 0 {
			s.Node[job] = append(s.Node[job], part(f, node))
		}
		if len(volume) > 0 {
			s.Volume[job] = append(s.Volume[job], part(f, volume))
		}
	}
}

// names reports whether a label is of the class's volume.
func (s *Shape) names(l *dto.LabelPair) bool {
	return strings.Contains(l.GetValue(), s.Class) || l.GetName() == "device" && slices.Contains(s.Devices, l.GetValue())
}
