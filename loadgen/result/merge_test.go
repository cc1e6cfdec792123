package result

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/stats"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// generator is the result of one that ran for ten seconds from a moment on, with so many transactions that all took as
// long.
func generator(number, of int, began time.Time, n uint64, each time.Duration) Part {
	var t metrics.Tally
	t.Offered, t.Completed = n, n
	t.Response.ObserveN(each, n)
	t.Service.ObserveN(each, n)
	r := New(metrics.Labels{Tool: "canary", Profile: "tpcb-like", Database: "shop", StorageClass: "r3"}, 100, 10*time.Second, t)
	r.parts = Parts{Began: began, Response: t.Response, Service: t.Service}
	return r.Of(Generator{number, of})
}

// Times are added up and quantiles taken of all of them: one generator of four is slow, and nine in ten of its
// transactions are among the slowest tenth of all.
func TestMerge(t *testing.T) {
	var all []Part
	var truth stats.Distribution
	for i := range 4 {
		each, n := time.Millisecond, uint64(1000)
		if i == 3 {
			each, n = 100*time.Millisecond, 200
		}
		all = append(all, generator(i, 4, noon.Add(time.Duration(i)*50*time.Millisecond), n, each))
		truth.ObserveN(each, n)
	}
	all[1].Errors, all[2].Errors = map[string]uint64{"timeout": 2}, map[string]uint64{"timeout": 1, "connection": 4}
	all[0].Notes, all[2].Notes = []string{"doubtful"}, []string{"doubtful"}
	all[0].CPUPer1000, all[3].CPUPer1000 = 1, 3.2
	slices.Reverse(all)
	m, err := Merge(all)
	if err != nil {
		t.Fatal(err)
	}
	if m.Completed != 3200 || m.Offered != 3200 || m.TargetRate != 400 || math.Abs(m.Rate-320) > 1e-9 || m.Generators != 4 || m.Seconds != 10 {
		t.Errorf("sum %+v", m)
	}
	if want := Sum(&truth); m.Response.Quantile(0.95) != want.Quantile(0.95) || m.Response.Quantile(0.5) != want.Quantile(0.5) || m.Response.Count != 3200 || m.Service.Mean != want.Mean {
		t.Errorf("response %+v, want %+v", m.Response, want)
	}
	// The mean of the four quantiles would be a quarter of it.
	if got := m.Response.Quantile(0.95); got < 0.09 || got > 0.11 {
		t.Errorf("p95 %v s, want 0.1", got)
	}
	if m.Errors["timeout"] != 3 || m.Errors["connection"] != 4 || math.Abs(m.CPUPer1000-(1000*1+200*3.2)/3200) > 1e-9 {
		t.Errorf("errors %v, CPU %v", m.Errors, m.CPUPer1000)
	}
	if !slices.Equal(m.Notes, []string{"doubtful (2 of 4 generators)"}) {
		t.Errorf("notes %q", m.Notes)
	}
	if all[3].Completed != 1000 || len(all[3].Errors) > 0 {
		t.Errorf("a result was changed: %+v", all[3])
	}
}

// What is written is read again, between the lines of a log, and a sum can be added to nothing else.
func TestMergeRead(t *testing.T) {
	var text bytes.Buffer
	text.WriteString("time=2026-11-23T12:00:00Z level=INFO msg=\"load starts\"\n")
	for i := range 2 {
		if err := generator(i, 2, noon, 10, time.Millisecond).WriteJSON(&text); err != nil {
			t.Fatal(err)
		}
		text.WriteString("level=INFO msg={}\n")
	}
	all, err := Read(strings.NewReader(text.String()))
	if err != nil || len(all) != 2 {
		t.Fatalf("%d results, %v", len(all), err)
	}
	m, err := Merge(all)
	if err != nil || m.Completed != 20 {
		t.Errorf("%+v, %v", m, err)
	}
	for name, text := range map[string]string{
		"cut: it has no end; it begins in line 2, and line ":                   text.String()[:len(text.String())/3],
		"cut: another one begins":                                              "{\n\"tool\": \"canary\",\n" + text.String(),
		"there is no result in it":                                             "level=INFO msg=nothing\n",
		"result 1: line 2, column 16: seconds is a JSON string; want a number": "{\n\"seconds\": \"ten\"\n}\n",
		"result 1: distribution:":                                              "{\n\"parts\": {\"response\": {\"n\": 3, \"slots\": [[1, 2]]}}\n}\n",
		"result 1: line 2, column 1: invalid character":                        "{\nx\n}\n",
	} {
		if _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What cannot be added up is refused, with the reason.
func TestMergeRefused(t *testing.T) {
	one := func(change func(*Part)) Part {
		r := generator(1, 2, noon, 10, time.Millisecond)
		change(&r)
		return r
	}
	zero := generator(0, 2, noon, 10, time.Millisecond)
	for want, all := range map[string][]Part{
		"no results":                                   nil,
		"of 2 generators these are missing: [1]":       {zero},
		"generator 0 is there twice":                   {zero, zero},
		"result 2 is not of one of several generators": {zero, one(func(r *Part) { r.Generator = Generator{} })},
		"result 2 is of another load: canary tpcb-like on database shop of class r1, and the": {zero, one(func(r *Part) { r.StorageClass = "r1" })},
		"result 2 is of 3 generators, and the first of 2":                                     {zero, one(func(r *Part) { r.Generator.Of = 3 })},
		"result 2 is of generator 2 of 2":                                                     {zero, one(func(r *Part) { r.Generator.Number = 2 })},
		"result 2 has measured nothing":                                                       {zero, one(func(r *Part) { r.Seconds = 0 })},
	} {
		if _, err := Merge(all); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// Generators that did not run together are reported.
func TestMergeApart(t *testing.T) {
	m, err := Merge([]Part{generator(0, 2, noon, 10, time.Millisecond), generator(1, 2, noon.Add(4*time.Second), 10, time.Millisecond)})
	if err != nil || len(m.Notes) != 1 || !strings.Contains(m.Notes[0], "together for 60 %") {
		t.Errorf("notes %q, %v", m.Notes, err)
	}
}

// An outage that several saw is one, from the first that felt it to the last.
func TestMergeOutages(t *testing.T) {
	at := func(s float64) time.Time { return noon.Add(time.Duration(s * float64(time.Second))) }
	a, b := generator(0, 2, noon, 10, time.Millisecond), generator(1, 2, noon, 10, time.Millisecond)
	a.Outages = []Outage{{at(1), 2, true, map[string]uint64{"connection": 3}}, {at(6), 1, true, nil}}
	b.Outages = []Outage{{at(1.5), 2, false, map[string]uint64{"connection": 1, "timeout": 1}}}
	var after stats.Distribution
	after.ObserveN(time.Second, 4)
	a.After(after)
	a = a.Of(a.Generator)
	m, err := Merge([]Part{a, b})
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Outages) != 2 || !m.Outages[0].Began.Equal(at(1)) || math.Abs(m.Outages[0].Seconds-2.5) > 1e-9 || m.Outages[0].Over || m.Outages[0].Errors["connection"] != 4 || !m.Outages[1].Over {
		t.Errorf("outages %+v", m.Outages)
	}
	if m.AfterOutages == nil || m.AfterOutages.Count != 4 || a.Outages[0].Errors["connection"] != 3 {
		t.Errorf("after %+v, its own %+v", m.AfterOutages, a.Outages)
	}
}
