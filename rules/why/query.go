package why

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules/why/queries"
)

// API is the part of a Prometheus client that is needed; promv1.API is one.
type API interface {
	Query(ctx context.Context, query string, at time.Time, options ...promv1.Option) (model.Value, promv1.Warnings, error)
}

// Queries returns every query, with matchers that match nothing, for who checks their names.
func Queries() []string {
	a := newQuerier(context.Background(), nil, time.Time{}, 5*time.Minute).about(Target{Cluster: "c", Node: "n", Server: "s", Volume: "v", Device: "d", Class: "k"})
	var all []string
	for _, name := range slices.Sorted(maps.Keys(queries.Portable)) {
		all = append(all, a.text(name))
	}
	return all
}

// querier queries one target. It keeps the first error and queries nothing after it.
type querier struct {
	ctx    context.Context
	api    API
	at     time.Time
	window time.Duration
	target Target
	of     *strings.Replacer
	err    *error // of all the targets of one read
	// failed, unless nil, gets what Prometheus cannot evaluate, which then has no series and is no error.
	failed *[]string
	// classic is set once a query found no native histograms, but classic ones.
	classic *bool
}

func newQuerier(ctx context.Context, api API, at time.Time, window time.Duration) *querier {
	a := &querier{ctx: ctx, api: api, at: at, window: window, err: new(error), classic: new(bool)}
	return a.about(Target{})
}

// about returns the same querier for another target.
func (a *querier) about(t Target) *querier {
	b := *a
	b.target = t
	cluster, named := Only(a.api)
	if !named {
		cluster = t.Cluster
	}
	b.of = matchers(t, cluster, named)
	return &b
}

// matchers fill in a target's labels, and the cluster's: $cluster is of any if none is named. $anywhere is of series that
// have no node, or the target's.
func matchers(t Target, cluster string, named bool) *strings.Replacer {
	of := func(labels ...string) string {
		var all []string
		if named || cluster != "" {
			labels = append(labels, "cluster", cluster)
		}
		for i := 0; i < len(labels); i += 2 {
			all = append(all, labels[i]+"="+strconv.Quote(labels[i+1]))
		}
		return strings.Join(all, ",")
	}
	alone, last, before := "", "", ""
	if named {
		alone, last, before = "{"+of()+"}", ","+of(), of()+","
	}
	return strings.NewReplacer("{$cluster}", alone, ",$cluster", last, "$cluster,", before, "$server", of("server", t.Server, "node", t.Node), "$anywhere", of("server", t.Server)+",node=~"+strconv.Quote(regexp.QuoteMeta(t.Node)+"|"), "$volume", of("volume", t.Volume),
		"$device", of("node", t.Node, "device", t.Device), "$node", of("node", t.Node), "$class", of("node", t.Node, "storageclass", t.ofServer()))
}

func (a *querier) text(name string) string {
	text, ok := queries.Portable[name]
	if !ok {
		panic("why: no query " + name)
	}
	return a.fill(text)
}

func (a *querier) fill(text string) string {
	return a.of.Replace(strings.ReplaceAll(text, "$window", model.Duration(a.window).String()))
}

// run runs a query by its name. VictoriaMetrics and the like have no functions of native histograms: then it queries
// classic ones.
func (a *querier) run(name string) (text string, answer model.Value, err error) {
	other, of := queries.Classic[name]
	if !*a.classic || !of {
		text = a.text(name)
		answer, _, err = a.api.Query(a.ctx, text, a.at)
		if err == nil || !of {
			return text, answer, err
		}
	}
	otherwise, _, failed := a.api.Query(a.ctx, a.fill(other), a.at)
	if failed == nil {
		*a.classic = true
		return a.fill(other), otherwise, nil
	}
	if text == "" {
		return a.fill(other), nil, failed
	}
	return text, answer, err
}

// vector runs a query by its name. It keeps an error, or what failed, and returns no series then.
func (a *querier) vector(name string) model.Vector {
	if *a.err != nil {
		return nil
	}
	if *a.classic && slices.Contains(queries.OfNative, name) {
		return nil
	}
	// A matcher of an empty value takes what has no such label, of whomever it is.
	for variable, value := range map[string]string{"$volume": a.target.Volume, "$device": a.target.Device, "$class": a.target.ofServer()} {
		if value == "" && strings.Contains(queries.Portable[name], variable) {
			return nil
		}
	}
	text, answer, err := a.run(name)
	if refused := (*promv1.Error)(nil); a.failed != nil && errors.As(err, &refused) && refused.Type == promv1.ErrExec {
		*a.failed = append(*a.failed, fmt.Sprintf("%s, which Prometheus cannot evaluate: %s", name, Line(err)))
		return nil
	}
	if err != nil {
		*a.err = fmt.Errorf("querying Prometheus for %s (%s): %w", name, text, err)
		return nil
	}
	v, ok := answer.(model.Vector)
	if !ok {
		*a.err = fmt.Errorf("querying Prometheus for %s (%s): the answer is a %s, want a vector", name, text, answer.Type())
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
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return '?'
	}, text)
}

// Line is an error as one line without what a terminal would obey or hide: there may be a peer's words in it.
func Line(err error) string { return Clean(strings.Join(strings.Fields(err.Error()), " ")) }

// number returns the value of a query with one series; NaN if there is none.
func (a *querier) number(name string) float64 {
	v := a.vector(name)
	if len(v) == 0 {
		return math.NaN()
	}
	return figure(v[0].Value)
}

// figure is a value as a time or a count; NaN, as one that is not there, if it can be neither.
func figure(v model.SampleValue) float64 {
	if v >= 0 && !math.IsInf(float64(v), 1) {
		return float64(v)
	}
	return math.NaN()
}

// by returns a query's values by the values of a label, without NaN.
func (a *querier) by(name string, label model.LabelName) map[string]float64 {
	values := map[string]float64{}
	for _, s := range a.vector(name) {
		if v := figure(s.Value); Known(v) {
			values[string(s.Metric[label])] = v
		}
	}
	return values
}
