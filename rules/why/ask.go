package why

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// API is the part of a Prometheus client that is needed; promv1.API is one.
type API interface {
	Query(ctx context.Context, query string, at time.Time, options ...promv1.Option) (model.Value, promv1.Warnings, error)
}

// questions are all there are, by name. $server, $volume, $device, $node and $class stand for
// matchers, $window for the window. Windows differ from the rules' five minutes, so that measured
// series are asked for; the rules' own are where an engine's figures have no other common name.
var questions = map[string]string{
	// Who there is.
	"servers": `server:volume:info`,
	"volumes": `group by (cluster, node, device, volume, namespace, persistentvolumeclaim, storageclass, backend, pod) (plumbline_volume_info)`,
	"wal":     `server:sync_volume:info`,
	"control": `storageclass:control:info`,

	// Statements.
	"commits":          `histogram_count(sum(increase(plumbline_query_duration_seconds{$server,command="commit"}[$window])))`,
	"commit mean":      `histogram_avg(sum(rate(plumbline_query_duration_seconds{$server,command="commit"}[$window])))`,
	"commit p99":       `histogram_quantile(0.99, sum(rate(plumbline_query_duration_seconds{$server,command="commit"}[$window])))`,
	"commit phases":    `sum by (phase) (increase(plumbline_query_phase_seconds_total{$server,command="commit"}[$window]))`,
	"statements":       `histogram_count(sum(increase(plumbline_query_duration_seconds{$server}[$window])))`,
	"statement mean":   `histogram_avg(sum(rate(plumbline_query_duration_seconds{$server}[$window])))`,
	"statement p99":    `histogram_quantile(0.99, sum(rate(plumbline_query_duration_seconds{$server}[$window])))`,
	"statement phases": `sum by (phase) (increase(plumbline_query_phase_seconds_total{$server}[$window]))`,
	// Of every server there is: one question, however many.
	"all commit means":    `histogram_avg(sum by (cluster, node, server) (rate(plumbline_query_duration_seconds{command="commit"}[$window])))`,
	"all statement means": `histogram_avg(sum by (cluster, node, server) (rate(plumbline_query_duration_seconds[$window])))`,
	"blocked":             `avg(avg_over_time(plumbline_query_blocked{$server}[$window]))`,
	"blocked for":         `max(plumbline_query_blocked_oldest_seconds{$server})`,
	"server stuck":        `max(server:stuck_seconds:max{$server})`,
	"storage wait":        `max by (phase) (plumbline_server_longest_wait_seconds{$server,phase=~"read|write|sync"})`,
	"node CPU pressure":   `max(rate(node_pressure_cpu_waiting_seconds_total{$node}[$window]))`,

	// The volume's device.
	"writes":             `histogram_count(sum(increase(ebpf_exporter_blkio_total_seconds{$device,op="write"}[$window]))) or sum(increase(node_disk_writes_completed_total{$device}[$window]))`,
	"write total":        `histogram_avg(sum(rate(ebpf_exporter_blkio_total_seconds{$device,op="write"}[$window]))) or sum(rate(node_disk_write_time_seconds_total{$device}[$window])) / sum(rate(node_disk_writes_completed_total{$device}[$window]))`,
	"write queue":        `histogram_avg(sum(rate(ebpf_exporter_blkio_queue_seconds{$device,op="write"}[$window])))`,
	"write device":       `histogram_avg(sum(rate(ebpf_exporter_blkio_device_seconds{$device,op="write"}[$window])))`,
	"flushes":            `histogram_count(sum(increase(ebpf_exporter_blkio_total_seconds{$device,op="flush"}[$window])))`,
	"flush total":        `histogram_avg(sum(rate(ebpf_exporter_blkio_total_seconds{$device,op="flush"}[$window])))`,
	"flush queue":        `histogram_avg(sum(rate(ebpf_exporter_blkio_queue_seconds{$device,op="flush"}[$window])))`,
	"flush device":       `histogram_avg(sum(rate(ebpf_exporter_blkio_device_seconds{$device,op="flush"}[$window])))`,
	"volume stalled":     `volume:stalled_seconds:max{$volume}`,
	"healthy replicas":   `max(plumbline_volume_healthy_replicas{$volume})`,
	"desired replicas":   `max(plumbline_volume_desired_replicas{$volume})`,
	"rebuilding":         `max(volume:rebuilding:bool{$volume})`,
	"engine write":       `histogram_avg(sum(rate(plumbline_volume_frontend_seconds{$volume,op="write"}[$window]))) or max(volume:engine_write_seconds:mean5m{$volume,source!="wire"})`,
	"replica places":     `plumbline_volume_replica_info{$volume}`,
	"replica disks":      `replica:disk:info{$volume}`,
	"replica writes":     `histogram_count(sum by (replica) (increase(plumbline_replica_request_duration_seconds{$volume,op="write"}[$window])))`,
	"replica round trip": `histogram_avg(sum by (replica) (rate(plumbline_replica_request_duration_seconds{$volume,op="write"}[$window])))`,
	"replica service":    `histogram_avg(sum by (replica) (rate(plumbline_replica_service_seconds{$volume,op="write"}[$window])))`,
	"replica last":       `sum by (replica) (increase(plumbline_replica_last_ack_total{$volume}[$window])) / on () group_left () sum(increase(plumbline_replica_last_ack_total{$volume}[$window]))`,
	"replica unread":     `max by (replica) (avg_over_time((plumbline_replica_service_unread_bytes{$volume} > bool 0)[$window:2s]))`,
	"replica stopped":    `max by (replica) (avg_over_time((plumbline_storage_process_stopped_seconds{$volume,role="replica"} > bool 0)[$window:2s]))`,
	// Of engines whose wire is not watched; by the replica's name.
	"replica time by engine":    `max by (replica) (replica:write_seconds:mean5m{$volume,source!="wire"})`,
	"replica service by engine": `max by (replica) (replica:write_service_seconds:mean5m{$volume,source!="wire"})`,

	// The chain from a statement to its claim.
	"agents":              `count(plumbline_feature_available{feature="statements"})`,
	"agents that measure": `sum(plumbline_feature_available{feature="statements"})`,
	"known servers":       `group by (cluster, node, server) (plumbline_server_info)`,
	"native durations":    `count(histogram_count(plumbline_query_duration_seconds))`,
	"classic durations":   `count(plumbline_query_duration_seconds_count)`,
	"all statements":      `histogram_count(sum by (cluster, node, server) (increase(plumbline_query_duration_seconds[$window]))) > 0`,
	"all phases":          `sum by (cluster, node, server) (increase(plumbline_query_phase_seconds_total[$window])) > 0`,
	"data volumes":        `group by (cluster, node, server, volume) (plumbline_server_volume_info{purpose="data"})`,
	"claims":              `group by (cluster, node, volume) (plumbline_volume_info{persistentvolumeclaim!=""})`,
	"renamed claims":      `count(plumbline_volume_info{exported_namespace!=""})`,

	// What the rules say.
	"suspect": `storageclass:suspect:info{$class}`,
	"alerts":  `ALERTS{alertstate="firing"}`,
}

// Queries returns every query, with matchers that match nothing, for who checks their names.
func Queries() []string {
	a := newAsker(context.Background(), nil, time.Time{}, 5*time.Minute).about(Target{Cluster: "c", Node: "n", Server: "s", Volume: "v", Device: "d", Class: "k"})
	var all []string
	for _, name := range slices.Sorted(maps.Keys(questions)) {
		all = append(all, a.text(name))
	}
	return all
}

// asker asks about one target. The first error is kept, and nothing is asked after it.
type asker struct {
	ctx    context.Context
	api    API
	at     time.Time
	window time.Duration
	of     *strings.Replacer
	err    *error // of all the targets of one look
}

func newAsker(ctx context.Context, api API, at time.Time, window time.Duration) *asker {
	return &asker{ctx: ctx, api: api, at: at, window: window, of: strings.NewReplacer(), err: new(error)}
}

// about returns the same asker for another target.
func (a *asker) about(t Target) *asker {
	b := *a
	b.of = matchers(t)
	return &b
}

// matchers fill in a target's labels.
func matchers(t Target) *strings.Replacer {
	of := func(labels ...string) string {
		var all []string
		if t.Cluster != "" {
			labels = append(labels, "cluster", t.Cluster)
		}
		for i := 0; i < len(labels); i += 2 {
			all = append(all, labels[i]+"="+strconv.Quote(labels[i+1]))
		}
		return strings.Join(all, ",")
	}
	return strings.NewReplacer("$server", of("server", t.Server, "node", t.Node), "$volume", of("volume", t.Volume),
		"$device", of("node", t.Node, "device", t.Device), "$node", of("node", t.Node), "$class", of("node", t.Node, "storageclass", t.Class))
}

func (a *asker) text(name string) string {
	text, ok := questions[name]
	if !ok {
		panic("why: no question " + name)
	}
	return a.of.Replace(strings.ReplaceAll(text, "$window", model.Duration(a.window).String()))
}

// vector asks a question; an error gives no series and is kept.
func (a *asker) vector(name string) model.Vector {
	if *a.err != nil {
		return nil
	}
	text := a.text(name)
	answer, _, err := a.api.Query(a.ctx, text, a.at)
	if err != nil {
		*a.err = fmt.Errorf("asking Prometheus for %s (%s): %w", name, text, err)
		return nil
	}
	v, ok := answer.(model.Vector)
	if !ok {
		*a.err = fmt.Errorf("asking Prometheus for %s (%s): the answer is a %s, want a vector", name, text, answer.Type())
	}
	for _, s := range v {
		for label, value := range s.Metric {
			s.Metric[label] = model.LabelValue(Clean(string(value)))
		}
	}
	return v
}

// Clean replaces what a terminal would obey or hide: others choose the names of servers, replicas and nodes.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, text)
}

// number asks a question with one answer; NaN if there is none.
func (a *asker) number(name string) float64 {
	v := a.vector(name)
	if len(v) == 0 {
		return math.NaN()
	}
	return float64(v[0].Value)
}

// by asks a question with an answer for each value of a label. NaN are left out.
func (a *asker) by(name string, label model.LabelName) map[string]float64 {
	values := map[string]float64{}
	for _, s := range a.vector(name) {
		if v := float64(s.Value); Known(v) {
			values[string(s.Metric[label])] = v
		}
	}
	return values
}
