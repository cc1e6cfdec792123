package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/procfs"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/tests/promapi"
	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/rig"
)

const section = "The rules on other engines, beside one Prometheus over both clusters"

// settle is how long the two may differ: they scrape and evaluate at moments of their own.
const settle = 4 * time.Minute

// key distinguishes the series of one name, on both sides.
func key(m model.Metric) string {
	own := m.Clone()
	delete(own, tenant)
	delete(own, model.MetricNameLabel)
	return own.String()
}

// chosen are records of which layer has grown most, or which replica is slowest: none when all is well, and then chance
// names one.
var chosen = map[string]bool{"storageclass:grown_most:info": true, "storageclass:layer_suspect:info": true, "storageclass:suspect:info": true, "volume:slowest_replica:info": true}

// sameRecords awaits that every rule records the same series on both, and compares their values: twins that were added
// up instead of one left out would double them.
func (s *stack) sameRecords(ctx context.Context, e *engine, file *rows.File) {
	all, err := rules.All()
	s.t.Check(err)
	names := map[string]bool{}
	for _, r := range all {
		if r.Record != "" && !chosen[r.Record] {
			names[r.Record] = true
		}
	}
	var series int
	var ratios []float64
	var low, high float64
	rig.Eventually(s.t, settle, func() error {
		series, ratios = 0, nil
		var problems []error
		for _, name := range slices.Sorted(maps.Keys(names)) {
			n, compared, err := s.sameRecord(ctx, e, name)
			series, ratios = series+n, append(ratios, compared...)
			if err != nil {
				problems = append(problems, err)
			}
		}
		if series == 0 {
			problems = append(problems, errors.New("the rules record nothing"))
		}
		// Both values are nearly steady, but up to two intervals apart; series that began a few seconds apart differ
		// more while windows fill.
		if low, high = rows.Quantile(ratios, 0.05), rows.Quantile(ratios, 0.95); low < 0.7 || high > 1.4 {
			problems = append(problems, fmt.Errorf("the values of %s differ: nine tenths of them are %.2f to %.2f of the one Prometheus'", e.name, low, high))
		}
		return errors.Join(problems...)
	})
	s.t.Logf("%d rules record the same %d series on %s; its values are %.2f to %.2f of the one Prometheus' (nine tenths of them)", len(names), series, e.name, low, high)
	file.Add(section, e.name+": recorded", "rules that record", fmt.Sprint(len(names)), "series, the same on both", fmt.Sprint(series),
		"values by the one Prometheus'", fmt.Sprintf("%.2f to %.2f", low, high))
}

// sameRecord compares what both have of one recorded metric; the ratios are of numbers above zero.
func (s *stack) sameRecord(ctx context.Context, e *engine, name string) (series int, ratios []float64, err error) {
	here, err := byKey(ctx, s.one, name)
	if err != nil {
		return 0, nil, err
	}
	expr := name
	for _, one := range here {
		if one.Histogram != nil {
			// Of those that the engine has not there is the classic one.
			expr = name + " or " + name + "_count"
		}
	}
	there, err := byKey(ctx, e.server, expr)
	if err != nil {
		return 0, nil, err
	}
	var only []string
	for k := range here {
		if there[k] == nil {
			only = append(only, "not on "+e.name+": "+k)
		}
	}
	for k := range there {
		if here[k] == nil {
			only = append(only, "only on "+e.name+": "+k)
		}
	}
	if len(only) > 0 {
		slices.Sort(only)
		return len(here), nil, fmt.Errorf("%s: %d differ, as %s", name, len(only), only[0])
	}
	for k, one := range here {
		if a, b := value(one), value(there[k]); a > 0 && b > 0 {
			ratios = append(ratios, b/a)
		}
	}
	return len(here), ratios, nil
}

// value is a sample's number, or how many a histogram has.
func value(s *model.Sample) float64 {
	v := float64(s.Value)
	if s.Histogram != nil {
		v = float64(s.Histogram.Count)
	}
	if math.IsInf(v, 0) || math.IsNaN(v) {
		return 0
	}
	return v
}

func byKey(ctx context.Context, server *promapi.Server, expr string) (map[string]*model.Sample, error) {
	v, err := server.Vector(ctx, expr)
	if err != nil {
		return nil, err
	}
	all := map[string]*model.Sample{}
	for _, one := range v {
		if all[key(one.Metric)] != nil {
			return nil, fmt.Errorf("%s is there twice: %s", expr, one.Metric)
		}
		all[key(one.Metric)] = one
	}
	return all, nil
}

// alerts are those that Alertmanager has, by their labels.
func (e *engine) alerts(ctx context.Context) (map[string]bool, error) {
	var list []struct {
		Labels model.Metric `json:"labels"`
	}
	text, err := rig.Get(ctx, "http://"+e.alertmanager+"/api/v2/alerts?active=true&inhibited=true&silenced=true")
	if err != nil {
		return nil, err
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, one := range list {
		k := key(one.Labels)
		if all[k] {
			return nil, fmt.Errorf("two alerts of Alertmanager have the labels %s", k)
		}
		all[k] = true
	}
	return all, nil
}

// firing are those that the one Prometheus has firing, in the same way.
func (s *stack) firing(ctx context.Context) (map[string]bool, error) {
	v, err := s.one.Vector(ctx, `ALERTS{alertstate="firing"}`)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, one := range v {
		m := one.Metric.Clone()
		delete(m, "alertstate")
		all[key(m)] = true
	}
	return all, nil
}

// sameAlerts awaits that Alertmanager has, each once, the alerts that fire on the one Prometheus.
func (s *stack) sameAlerts(ctx context.Context, e *engine) {
	count := 0
	rig.Eventually(s.t, settle, func() error {
		here, err := s.firing(ctx)
		if err != nil {
			return err
		}
		there, err := e.alerts(ctx)
		if err != nil {
			return err
		}
		count = len(here)
		var problems []error
		for _, k := range slices.Sorted(maps.Keys(here)) {
			if !there[k] {
				problems = append(problems, fmt.Errorf("%s has not sent %s", e.name, k))
			}
		}
		for _, k := range slices.Sorted(maps.Keys(there)) {
			if !here[k] {
				problems = append(problems, fmt.Errorf("only %s has sent %s", e.name, k))
			}
		}
		return errors.Join(problems...)
	})
	s.t.Logf("the same %d alerts fire on %s", count, e.name)
}

// alarmed awaits the alerts of the stalled disk, in its cluster and in no other.
func (s *stack) alarmed(ctx context.Context, e *engine, file *rows.File, stall time.Time, damaged *cluster) {
	const alert = "DeviceStalled"
	var on []string
	rig.Eventually(s.t, settle, func() error {
		on = nil
		all, err := e.alerts(ctx)
		for k := range all {
			if strings.Contains(k, `alertname="`+alert+`"`) {
				on = append(on, k)
			}
		}
		if len(on) == 0 {
			return errors.Join(fmt.Errorf("no %s", alert), err)
		}
		return nil
	})
	after := time.Since(stall)
	for _, k := range on {
		if !strings.Contains(k, fmt.Sprintf("cluster=%q", damaged.name)) {
			s.t.Errorf("%s of a cluster in which all is well", k)
		}
	}
	s.t.Logf("%s of cluster %s is reported by %s %.0f s after the disk stalled: %d volumes or devices", alert, damaged.name, e.name, after.Seconds(), len(on))
	file.Add(section, e.name+": alert", "alert", alert, "seconds from the stall to Alertmanager", fmt.Sprintf("%.0f", after.Seconds()),
		"clusters reported", damaged.name)
}

// samePages makes every query of the dashboards on both: what has an answer on one has it on the other.
func (s *stack) samePages(ctx context.Context, e *engine, file *rows.File) {
	all, err := dashboards.Expressions(filepath.Join(s.folder, "dashboards"))
	s.t.Check(err)
	theirs, err := dashboards.Expressions(filepath.Join(s.folder, "dashboards", e.boards))
	s.t.Check(err)
	if len(theirs) != len(all) {
		s.t.Fatalf("%d queries, and %d on %s", len(all), len(theirs), e.name)
	}
	intervals := dashboards.Intervals{Rate: (4 * interval).String(), Range: "5m"}
	end := time.Now()
	window := promv1.Range{Start: end.Add(-5 * time.Minute), End: end, Step: interval}
	answers := func(server *promapi.Server, one dashboards.Expression) (bool, time.Duration, error) {
		began := time.Now()
		var v model.Value
		var err error
		if one.Instant {
			v, _, err = server.Query(ctx, one.Fill(intervals, nil), end)
		} else {
			v, _, err = server.QueryRange(ctx, one.Fill(intervals, nil), window)
		}
		return err == nil && v.String() != "", time.Since(began), err
	}
	var here, there []float64
	answered := 0
	for i, one := range all {
		a, took, err := answers(s.one, one)
		s.t.Check(err)
		here = append(here, took.Seconds())
		b, took, err := answers(e.server, theirs[i])
		there = append(there, took.Seconds())
		switch {
		case ctx.Err() != nil:
			s.t.Check(ctx.Err())
		case err != nil:
			s.t.Errorf("%s: %v", one.Where(), err)
		case a != b:
			s.t.Errorf("%s: the one Prometheus has an answer: %v, %s: %v", one.Where(), a, e.name, b)
		case a:
			answered++
		}
	}
	s.t.Logf("%d queries of the dashboards, %d of them with an answer, are answered alike by %s; median %.0f ms on one Prometheus, %.0f there", len(all), answered, e.name, 1e3*rows.Median(here), 1e3*rows.Median(there))
	file.Add(section, e.name+": dashboards", "queries", fmt.Sprint(len(all)), "with an answer, on both", fmt.Sprint(answered),
		"median on one Prometheus", fmt.Sprintf("%.0f ms", 1e3*rows.Median(here)), "there", fmt.Sprintf("%.0f ms", 1e3*rows.Median(there)),
		"slowest there", fmt.Sprintf("%.1f s", rows.Quantile(there, 1)))
}

// stored awaits that the store answers for the past by itself, from the bucket, histograms included.
func (s *stack) stored(ctx context.Context) {
	at := time.Now().Add(-3 * blockLength)
	rig.Eventually(s.t, settle, func() error {
		for _, expr := range []string{"count(count by (cluster) (up))", "count by (cluster) (histogram_count(plumbline_query_duration_seconds)) > 0"} {
			if _, err := s.past.NumberAt(ctx, "count("+expr+")", at); err != nil {
				return fmt.Errorf("the store, of %s: %w", at.Format(time.TimeOnly), err)
			}
		}
		return nil
	})
	s.t.Logf("the store answers for %s from the bucket", at.Format(time.TimeOnly))
}

// costs writes what each process has used.
func (s *stack) costs(file *rows.File) {
	for _, name := range slices.Sorted(maps.Keys(s.processes)) {
		p, err := procfs.NewProc(s.processes[name].PID())
		if err != nil {
			continue // killed
		}
		stat, err := p.Stat()
		s.t.Check(err)
		began, err := stat.StartTime()
		s.t.Check(err)
		age := float64(time.Now().UnixMilli())/1000 - began
		cpu := fmt.Sprintf("%.3f", stat.CPUTime()/age)
		memory := fmt.Sprintf("%.0f MB", float64(stat.ResidentMemory())/1e6)
		s.t.Logf("%-14s %s CPUs, %s", name, cpu, memory)
		file.Add(section, "process "+name, "CPUs", cpu, "memory", memory)
	}
}
