package matrix

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// A limit is only of what was recorded; what was not is unknown, with the reason.
func TestLimit(t *testing.T) {
	layers := func(of string, parts ...Part) *Layers { return &Layers{Of: of, Parts: parts} }
	write := Step{FIO: &FIO{RW: "write", Jobs: 2}}
	for name, c := range map[string]struct {
		row           Row
		what, because string
	}{
		"nothing recorded":       {Row{CPUIdle: 0.8}, limitUnknown, "why there is none"},
		"generator":              {Row{CPUIdle: 0.5, Generator: 1.9, step: write}, limitGenerator, "its threads, 2, kept 1.9 CPUs busy"},
		"not quite":              {Row{CPUIdle: 0.5, Generator: 1.5, step: write}, limitUnknown, "why there is none"},
		"machine":                {Row{CPUIdle: 0.02, Generator: 0.3, step: write}, limitCPU, "98 % busy; the generator kept 0.3"},
		"machine before layers":  {Row{CPUIdle: 0.02, step: write, Layers: layers("write", Part{"network", 1})}, limitCPU, "98 % busy"},
		"network":                {Row{CPUIdle: 0.8, Layers: layers("commit", Part{"cpu", 1}, Part{"network", 7}, Part{"disk", 2})}, limitNetwork, "of a commit's time: network 70 %, device 20 %"},
		"plain device":           {Row{CPUIdle: 0.8, Layers: layers("write", Part{"queue", 1}, Part{"device", 9})}, limitDevice, "device 100 %"},
		"device above engine":    {Row{CPUIdle: 0.8, Layers: layers("write", Part{"device", 6}, Part{"engine", 4})}, limitWay, "way to the engine 60 %, engine 40 %"},
		"engine and replica":     {Row{CPUIdle: 0.8, Layers: layers("write", Part{"engine", 3}, Part{"replica", 3}, Part{"disk", 4})}, limitEngine, "engine 60 %"},
		"several":                {Row{CPUIdle: 0.8, Layers: layers("commit", Part{"cpu", 3}, Part{"network", 3.5}, Part{"wait", 3.5})}, limitSeveral, "network 35 %"},
		"unsplit sync":           {Row{CPUIdle: 0.8, Layers: layers("commit", Part{"cpu", 1}, Part{"sync", 9})}, limitUnknown, "unknown 90 % (sync)"},
		"a layer not known here": {Row{CPUIdle: 0.8, Layers: layers("commit", Part{"cpu", 1}, Part{"gpu", 9})}, limitUnknown, "unknown 90 % (gpu), CPU of the database 10 %"},
		"database":               {Row{CPUIdle: 0.8, Layers: layers("statement", Part{"cpu", 9}, Part{"read", 1})}, limitDatabase, "CPU of the database 90 %"},
		"node":                   {Row{CPUIdle: 0.8, Layers: layers("statement", Part{"cpu", 3}, Part{"runqueue", 5})}, limitNode, "62 %"},
		"a lock stands out":      {Row{CPUIdle: 0.8, Layers: &Layers{Of: "commit", Culprit: "wait", Parts: []Part{{"cpu", 5}, {"wait", 5}}}}, limitSessions, "stands out is waiting for others"},
		"nobody's limit":         {Row{CPUIdle: 0.8, Layers: &Layers{Of: "commit", Culprit: "file_system", Parts: []Part{{"cpu", 9}, {"wait", 1}}}}, limitDatabase, "CPU of the database 90 %"},
		"empty":                  {Row{CPUIdle: 0.8, Layers: layers("commit")}, limitUnknown, "empty"},
	} {
		if c.row.Layers == nil {
			c.row.NoLayers = "why there is none"
		}
		if got := c.row.limit(); got.What != c.what || !strings.Contains(got.Because, c.because) {
			t.Errorf("%s: %+v, want %s because %q", name, got, c.what, c.because)
		}
	}
}

// Layers come from Prometheus' series at the time of the run, and where there are none the row has the reason.
func TestLayers(t *testing.T) {
	lab := whytest.Healthy()
	lab.Trip["r3-2"], lab.Device["r3"] = 30, 34
	pgbench, fioWrite := Step{Pgbench: &Pgbench{Clients: 4, Scale: 1}}, Step{FIO: &FIO{RW: "randwrite", Jobs: 1}}
	runner := Runner{Prometheus: lab.Record(), Log: slog.New(slog.DiscardHandler)}
	row := func(class string, step Step, took time.Duration) Row {
		return Row{Step: "s", StorageClass: class, Round: 1, Result: &result.Result{}, CPUIdle: 0.7, Began: whytest.End.Add(-took), Ended: whytest.End, step: step}
	}
	r := Report{Repeat: 1, Rows: []Row{
		row("r3", pgbench, time.Minute), row("r3", fioWrite, time.Minute), row("r3", Step{FIO: &FIO{RW: "randread", Jobs: 1}}, time.Minute),
		row("r3", pgbench, 5*time.Second), row("nowhere", pgbench, time.Minute),
	}}
	runner.queryLayers(t.Context(), &r)
	if l := r.Rows[0].Layers; l == nil || l.Of != "commit" || l.Mean <= 0 || !strings.Contains(l.Words, "r3") {
		t.Fatalf("layers of pgbench: %+v, %+v", l, r.Rows[0].Limit)
	}
	sum := 0.0
	for _, p := range r.Rows[0].Layers.Parts {
		sum += p.Seconds
	}
	if mean := r.Rows[0].Layers.Mean; sum < 0.9*mean || sum > 1.1*mean {
		t.Errorf("the layers add up to %v of %v s", sum, mean)
	}
	if l := r.Rows[1]; l.Layers == nil || l.Layers.Of != "write" || l.Limit.What != limitNetwork {
		t.Errorf("layers of fio's writes: %+v, %+v; a replica's round trips take most of them", l.Layers, l.Limit)
	}
	for i, want := range map[int]string{2: "reads are not measured", 3: "too short", 4: "nothing is known of it"} {
		if l := r.Rows[i]; l.Layers != nil || l.Limit.What != limitUnknown || l.Limit.Because != l.NoLayers || !strings.Contains(l.NoLayers, want) {
			t.Errorf("run %d: %+v, %+v; want %q", i, l.Layers, l.Limit, want)
		}
	}
	runner.Prometheus = nil
	runner.queryLayers(t.Context(), &r)
	if l := r.Rows[0].Limit; l.What != limitUnknown || !strings.Contains(l.Because, "--prometheus") {
		t.Errorf("without Prometheus: %+v", l)
	}
}
