package disk

import (
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// Metrics of the search for disks, of the collectors of several exporters. That a disk is not found is no failure of
// the collector.
var untracedDesc = prometheus.NewDesc("plumbline_untraced_paths",
	"Paths on this node whose disk cannot be found, so that what is on them has an empty label device; the log names each once, and why.",
	[]string{"collector"}, nil)

// Untraced counts and logs the paths whose disks a collector does not find. It is used by one Update at a time.
type Untraced struct {
	log         *slog.Logger
	collector   string
	before, now map[string]bool // paths, in the last Update and in this one
}

// NewUntraced returns an Untraced for the collector of this name.
func NewUntraced(log *slog.Logger, collector string) *Untraced {
	return &Untraced{log: log, collector: collector, now: map[string]bool{}}
}

// Note takes the outcome of a Find. A path is logged when it begins to be untraced.
func (u *Untraced) Note(path string, err error) {
	if err == nil || u.now[path] {
		return
	}
	u.now[path] = true
	if !u.before[path] {
		u.log.Warn("a path's disk cannot be found; what is on it has an empty label device; see --path.rootfs and the volume mounts of the exporter",
			"collector", u.collector, "path", label.Value(path), "err", label.Text(err.Error(), 512))
	}
}

// Send ends an Update: it sends how many paths were noted in it.
func (u *Untraced) Send(ch chan<- prometheus.Metric) {
	ch <- prometheus.MustNewConstMetric(untracedDesc, prometheus.GaugeValue, float64(len(u.now)), u.collector)
	u.before, u.now = u.now, map[string]bool{}
}
