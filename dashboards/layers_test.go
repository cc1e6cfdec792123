package dashboards

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// The suspect of a class is a state of the panel, whichever layer it is: of several the lowest, what is stalled first.
// A layer that is not known here is not taken for none.
func TestSuspect(t *testing.T) {
	at := func(suspects, stalled []string) string {
		r := whytest.NewRecording()
		r.Gauge(`plumbline_volume_info{node="n",device="d",volume="v",storageclass="c"}`, 1)
		r.Gauge(`storageclass:query_layer_growth_seconds:inferred5m{node="n",storageclass="c",layer="disk"}`, 1)
		for i, s := range suspects {
			node := string(rune('n' + i))
			r.Gauge(`storageclass:query_layer_growth_seconds:inferred5m{node="`+node+`",storageclass="c",layer="cpu"}`, 1)
			r.Gauge(`storageclass:query_layer_seconds:inferred5m{node="`+node+`",storageclass="c",layer="cpu"}`, 1)
			r.Gauge(`storageclass:suspect:info{node="`+node+`",storageclass="c",suspect="`+s+`"}`, 1)
		}
		for _, s := range stalled {
			r.Gauge(`volume:stalled_seconds:max{volume="v",layer="`+s+`"}`, 20)
		}
		v, _, err := r.Query(t.Context(), strings.ReplaceAll(suspect(), "$storageclass", ".*"), whytest.End)
		if err != nil {
			t.Fatal(err)
		}
		vector, _ := v.(model.Vector)
		if len(vector) != 1 {
			t.Fatalf("%v, %v: %v", suspects, stalled, v)
		}
		for _, one := range suspectStates() {
			if float64(one.value) == float64(vector[0].Value) {
				return one.name
			}
		}
		t.Fatalf("%v, %v: %v is no state", suspects, stalled, v)
		return ""
	}
	type is = []string
	for _, l := range layers.All {
		if got := at(is{l.Name}, nil); got != l.Name {
			t.Errorf("the suspect %s is shown as %s", l.Name, got)
		}
		if got := at(nil, is{l.Name}); l.Stuck != "" && got != l.Stuck {
			t.Errorf("a stall of %s is shown as %s", l.Name, got)
		}
	}
	for _, c := range []struct {
		suspects, stalled is
		want              string
	}{
		{nil, nil, "none"},
		{is{"load"}, nil, "load"},
		{is{"gpu"}, nil, "another layer"},
		{is{"gpu", "cpu"}, nil, "cpu"},
		{is{"disk", "rest"}, nil, "disk"},
		{is{"queue", "network"}, nil, "network"},
		{is{"disk"}, is{"device"}, "device stalled"},
		{is{"disk"}, is{"gpu"}, "another layer stalled"},
	} {
		if got := at(c.suspects, c.stalled); got != c.want {
			t.Errorf("suspects %v, stalls %v: shown as %s, want %s", c.suspects, c.stalled, got, c.want)
		}
	}
}

// A layer that is not known here is of the volume in the bars, so that the bars add up.
func TestBarsAddUp(t *testing.T) {
	r := whytest.NewRecording()
	r.Gauge(`server:volume:info{node="n",server="s",volume="v",storageclass="c"}`, 1)
	for layer, seconds := range map[string]float64{"queue": 1, "engine": 2, "disk": 3, "gpu": 4} {
		r.Gauge(`storageclass:query_layer_seconds:inferred5m{node="n",storageclass="c",layer="`+layer+`"}`, seconds)
	}
	total := 0.0
	for _, phase := range layers.Names(layers.IsPhase) {
		r.Add(`plumbline_query_phase_seconds_total{node="n",server="s",phase="`+phase+`"}`, func(i int, s *whytest.Point) { s.Value = float64(i) })
	}
	r.Add(`plumbline_query_duration_seconds{node="n",server="s"}`, func(i int, s *whytest.Point) { s.Value = float64(i) })
	got := map[string]float64{}
	for _, q := range statementBars() {
		expr := strings.NewReplacer("$storageclass", ".*", nowWindow, "1m", "histogram_count", "", ">= 0", "").Replace(q.expr)
		v, _, err := r.Query(t.Context(), expr, whytest.End.Add(-time.Second))
		if err != nil {
			t.Fatalf("%s: %v\n%s", q.legend, err, expr)
		}
		for _, s := range v.(model.Vector) {
			got[q.legend] += float64(s.Value)
			total += float64(s.Value)
		}
	}
	if total < 6.99 || total > 7.01 || got["volume"] < 1.99 || got["volume"] > 2.01 {
		t.Errorf("of seven phases of 1 s the parts have %v: %v; queue and a layer that is not known have half of sync and read, and write is the volume's", total, got)
	}
}
