package input

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// question is one to Prometheus, of native histograms and, where they are not there, of classic ones. $server stands
// for a server's matchers, $devices for those of block devices, $cluster for its cluster's, $window for the window.
type question struct{ native, classic string }

var questions = map[string]question{
	"durations": {`sum by (command) (increase(plumbline_query_duration_seconds{$server}[$window]))`,
		`sum by (command, le) (increase(plumbline_query_duration_seconds_bucket{$server}[$window]))`},
	"phases": {native: `sum by (command, phase) (increase(plumbline_query_phase_seconds_total{$server}[$window]))`},
	"requests": {`sum by (node, device, op) (increase(ebpf_exporter_blkio_total_seconds{$devices,op=~"read|write|flush"}[$window]))`,
		`sum by (node, device, op, le) (increase(ebpf_exporter_blkio_total_seconds_bucket{$devices,op=~"read|write|flush"}[$window]))`},
	"bytes": {native: `sum by (node, device) (increase(node_disk_written_bytes_total{$devices}[$window])) / (sum by (node, device) (increase(node_disk_writes_completed_total{$devices}[$window])) > 0)`},
	"load": {`sum by (cluster, node, device) (histogram_count(rate(ebpf_exporter_blkio_total_seconds{op=~"write|flush",$cluster}[$window])))`,
		`sum by (cluster, node, device) (rate(ebpf_exporter_blkio_total_seconds_count{op=~"write|flush",$cluster}[$window]))`},
	"sessions": {native: `max(plumbline_query_processes{$server})`},
	"volumes":  {native: `group by (cluster, node, device, volume, storageclass, backend, namespace, pod) (plumbline_volume_info{$cluster})`},
	"below":    {native: `count by (cluster, node, device) (plumbline_replica_info{$cluster})`},
	"replicas": {native: `max by (cluster, volume) (plumbline_volume_desired_replicas{$cluster})`},
}

// Queries returns every query, with matchers that match nothing, for who checks their names.
func Queries() []string {
	fill := matchers(map[string]string{"server": `server="s",node="n"`, "devices": `node="n",device=~"d"`, "cluster": `cluster="c"`, "window": "5m"})
	var all []string
	for _, q := range questions {
		for _, text := range []string{q.native, q.classic} {
			if text != "" {
				all = append(all, fill.Replace(text))
			}
		}
	}
	return all
}

func matchers(of map[string]string) *strings.Replacer {
	var pairs []string
	for name, text := range of {
		pairs = append(pairs, "$"+name, text)
	}
	return strings.NewReplacer(pairs...)
}

// labels writes matchers, those with empty values left out.
func labels(pairs ...string) string {
	var all []string
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			all = append(all, pairs[i]+"="+strconv.Quote(pairs[i+1]))
		}
	}
	return strings.Join(all, ",")
}

func duration(d time.Duration) string { return model.Duration(d).String() }
