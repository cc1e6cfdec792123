package report

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/given"
)

const (
	// mostPoints of a layer's line.
	mostPoints = 1000
	// leastStep between two points.
	leastStep = 5 * time.Second
	// alertStep is the longest between two reads of alerts: rules are evaluated once a minute.
	alertStep = time.Minute
	// queryPoints are queried at once; Prometheus itself allows 11,000.
	queryPoints = 10_000
	// queryTimeout bounds one query.
	queryTimeout = time.Minute
)

// Layer is a query for a layer of latency, in seconds, with a storageclass in its result.
type Layer struct{ Name, Query string }

// ofClass brings a value by volume to its storage class.
const ofClass = " * on (volume) group_left (storageclass) max by (volume, storageclass) (plumbline_volume_info))"

// DefaultLayers are the project's own rules, from the statement down to the replicas' disks.
var DefaultLayers = []Layer{
	{"statement", "avg by (storageclass) (server:query_seconds:mean5m * on (node, server) group_left (storageclass) max by (node, server, storageclass) (server:volume:info))"},
	{"oldest statement under way", `max by (storageclass) (max by (node, server) (plumbline_query_oldest_seconds{phase!="client"}) * on (node, server) group_left (storageclass) max by (node, server, storageclass) (server:volume:info))`},
	{"block write", "storageclass:block_write_seconds:mean5m"},
	{"block flush", "storageclass:block_flush_seconds:mean5m"},
	{"block read", "storageclass:block_read_seconds:mean5m"},
	{"engine write", "avg by (storageclass) (max by (volume) (volume:engine_write_seconds:mean5m)" + ofClass},
	{"slowest replica", "avg by (storageclass) (max by (volume) (replica:write_seconds:mean5m)" + ofClass},
	{"fastest replica", "avg by (storageclass) (min by (volume) (replica:write_seconds:mean5m)" + ofClass},
	{"backing disk write", "storageclass:disk_write_seconds:mean5m"},
}

// ParseLayer reads NAME=QUERY.
func ParseLayer(text string) (Layer, error) {
	name, query, ok := strings.Cut(text, "=")
	if !ok || strings.TrimSpace(name) == "" || strings.TrimSpace(query) == "" {
		return Layer{}, fmt.Errorf("%q is not of the form NAME=QUERY", text)
	}
	return Layer{strings.TrimSpace(name), strings.TrimSpace(query)}, nil
}

// AddPrometheus adds, from a Prometheus server, the layers and the alerts that fired during the
// soak. A query that fails is a note in the report.
func (r *Report) AddPrometheus(ctx context.Context, server string, layers []Layer) {
	if r.Last.IsZero() {
		return
	}
	step := max(r.Last.Sub(r.Began)/mostPoints, leastStep).Round(time.Second)
	r.addHistory(ctx, server, min(step, alertStep))
	for _, layer := range layers {
		found, err := queryRange(ctx, server, layer.Query, r.Began, r.Last, step)
		if err != nil {
			r.note("layer %s: %v", layer.Name, err)
			continue
		}
		if len(found) == 0 {
			r.note("layer %s: no data for %s", layer.Name, layer.Query)
		}
		for _, s := range found {
			s.Name = strings.TrimSpace(layer.Name + strings.TrimPrefix(s.Name, s.StorageClass))
			r.Layers = append(r.Layers, s)
		}
	}
	if len(r.Layers) > 0 && step > alertStep {
		r.note("layers of latency: a value every %v; what came and went between two of them is not shown", step)
	}
	alerts, err := queryRange(ctx, server, `ALERTS{alertstate="firing"}`, r.Began, r.Last, min(step, alertStep))
	if err != nil {
		r.note("alerts: %v", err)
	}
	for _, a := range alerts {
		for i := 0; i < len(a.Times); {
			j := i
			for j+1 < len(a.Times) && a.Times[j+1].Sub(a.Times[j]) <= alertGap {
				j++
			}
			r.Marks = append(r.Marks, Mark{alertMark, a.Name, a.Times[i], a.Times[j], ""})
			i = j + 1
		}
	}
	slices.SortStableFunc(r.Marks, func(a, b Mark) int { return a.From.Compare(b.From) })
	r.addRestarts(ctx, server, step)
}

// alertGap is how far apart two sights of an alert may be that are one. Rules are evaluated once a minute, and a
// Prometheus that forgets sooner (--query.lookback-delta) does not know the alert in between.
const alertGap = 90 * time.Second

// addRestarts notes each process that Prometheus scrapes and that was started again meanwhile.
func (r *Report) addRestarts(ctx context.Context, server string, step time.Duration) {
	query := fmt.Sprintf(`sum by (process) (label_join(changes(process_start_time_seconds[%ds]), "process", " ", "job", "instance")) > 0`,
		int(max(r.Last.Sub(r.Began), step).Seconds()))
	found, err := queryRange(ctx, server, query, r.Last, r.Last, step)
	if err != nil {
		r.note("restarts: %v", err)
	}
	for _, s := range found {
		if n := len(s.Values); n > 0 {
			r.note("started again while the soak ran: %s, %.0f times; its exit code is in its supervisor's log", strings.TrimPrefix(s.Name, "process="), s.Values[n-1])
		}
	}
}

// queryRange reads the values of a query, in as many pieces as the server's limit needs, and puts each series together.
// What was known before an error is returned with it.
func queryRange(ctx context.Context, server, query string, from, to time.Time, step time.Duration) ([]Series, error) {
	var out []Series
	known := map[string]int{} // where in out, by all labels
	for first := from; !from.After(to); {
		until := from.Add(queryPoints * step)
		if until.After(to) {
			until = to
		}
		found, err := queryPiece(ctx, server, query, from, until, step)
		if err != nil && from.After(first) {
			err = fmt.Errorf("from %s on: %w", clock(from), err)
		}
		if err != nil {
			return out, err
		}
		for _, p := range found {
			i, ok := known[p.labels]
			if !ok {
				known[p.labels] = len(out)
				out = append(out, p.Series)
				continue
			}
			out[i].Times, out[i].Values = append(out[i].Times, p.Times...), append(out[i].Values, p.Values...)
		}
		from = until.Add(step)
	}
	return out, nil
}

// piece is a part of a series, with all of its labels.
type piece struct {
	Series
	labels string
}

// queryPiece sends one query.
func queryPiece(ctx context.Context, server, query string, from, to time.Time, step time.Duration) ([]piece, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	address, err := url.JoinPath(server, "/api/v1/query_range")
	if err != nil {
		return nil, err
	}
	seconds := func(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }
	form := url.Values{"query": {query}, "start": {seconds(from)}, "end": {seconds(to)}, "step": {step.String()}}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var body struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string
				Values [][2]json.RawMessage
			}
		}
	}
	text, err := given.ReadAll(answer.Body)
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return nil, fmt.Errorf("the server answers %s with something else than JSON", answer.Status)
	}
	if body.Status != "success" {
		return nil, fmt.Errorf("the server refuses %q: %s", query, body.Error)
	}
	var out []piece
	for _, found := range body.Data.Result {
		s := Series{Name: name(found.Metric), StorageClass: found.Metric["storageclass"]}
		for _, v := range found.Values {
			var at float64
			var text string
			if json.Unmarshal(v[0], &at) != nil || json.Unmarshal(v[1], &text) != nil {
				continue
			}
			value, err := strconv.ParseFloat(text, 64)
			if err != nil || math.IsNaN(value) {
				continue
			}
			s.Times, s.Values = append(s.Times, time.UnixMilli(int64(at*1000)).UTC()), append(s.Values, value)
		}
		out = append(out, piece{s, fmt.Sprint(found.Metric)})
	}
	return out, nil
}

// name makes a short name of a series' labels: the alert's name or the storage class, and what else distinguishes it
// from the others.
func name(labels map[string]string) string {
	var parts []string
	for _, first := range []string{"alertname", "storageclass"} {
		if v := labels[first]; v != "" {
			parts = append(parts, v)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		switch key {
		case "__name__", "alertname", "alertstate", "storageclass", "severity", "job", "instance":
		default:
			parts = append(parts, key+"="+labels[key])
		}
	}
	return strings.Join(parts, " ")
}
