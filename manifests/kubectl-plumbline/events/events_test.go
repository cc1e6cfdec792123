package events

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/rules/stored"
	"github.com/plumbline/plumbline/rules/why"
)

// store is Prometheus' own engine over series that are written as its tests write them, one sample every 30 s from 0
// on.
type store struct {
	stored.Find
	engine *promql.Engine
	err    error
}

func newStore(t *testing.T, series string) *store {
	t.Helper()
	var all []storage.Series
	for line := range strings.Lines(series) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		metric, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(line)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, stored.Samples(metric, func(yield func(int64, float64) bool) {
			for i, v := range values {
				if !v.Omitted && !yield(int64(i)*30_000, v.Value) {
					return
				}
			}
		}))
	}
	return &store{engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1 << 22, Timeout: time.Minute}),
		Find: func(_, _ int64, matchers []*labels.Matcher) []storage.Series { return stored.Select(all, matchers) }}
}

func (s *store) Query(ctx context.Context, query string, at time.Time, _ ...promv1.Option) (model.Value, promv1.Warnings, error) {
	if s.err != nil {
		return nil, nil, s.err
	}
	v, err := s.Find.Query(ctx, s.engine, query, at)
	return v, nil, err
}

// server is an API server that takes events.
type server struct {
	*httptest.Server
	events map[string]corev1.Event
	order  []string
	// answer returns another code than 201 for an event.
	answer func(corev1.Event) int
}

func newServer(t *testing.T) *server {
	s := &server{events: map[string]corev1.Event{}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var e corev1.Event
		body, _ := io.ReadAll(r.Body)
		if err := json.Unmarshal(body, &e); err != nil || r.Method != http.MethodPost || r.URL.Path != "/api/v1/namespaces/"+e.Namespace+"/events" {
			t.Errorf("%s %s: %v", r.Method, r.URL.Path, err)
		}
		code := http.StatusCreated
		if s.answer != nil {
			code = s.answer(e)
		}
		if _, ok := s.events[e.Name]; ok && code == http.StatusCreated {
			code = http.StatusConflict
		}
		if code == http.StatusCreated {
			s.events[e.Name] = e
			s.order = append(s.order, e.Name)
		}
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(metav1.Status{Message: http.StatusText(code)})
	}))
	t.Cleanup(s.Close)
	return s
}

// written lists the events in the order in which they came.
func (s *server) written() (all []string) {
	for _, name := range s.order {
		e := s.events[name]
		all = append(all, fmt.Sprintf("%s %s/%s %s %s at %d", e.InvolvedObject.Kind, e.Namespace, e.InvolvedObject.Name, e.Type, e.Reason, e.FirstTimestamp.Unix()))
	}
	return all
}

func newWriter(t *testing.T, s *server, api why.API) *Writer {
	t.Helper()
	w, err := NewWriter(&rest.Config{Host: s.URL}, Source{API: api, Log: slog.New(slog.DiscardHandler)}, "writer-0", prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func at(seconds int) time.Time { return time.Unix(int64(seconds), 0) }

// rounds makes a round every 30 s.
func rounds(t *testing.T, w *Writer, from, to int) {
	t.Helper()
	for s := from; s <= to; s += 30 {
		if err := w.Round(t.Context(), at(s)); err != nil {
			t.Fatalf("round at %d: %v", s, err)
		}
	}
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

const identities = `
	threshold:main_part:ratio 0.4x1000
	plumbline_volume_info{node="n1",volume="pvc-1",namespace="shop",persistentvolumeclaim="data-pg-0",claim_uid="uid-claim"} 1x1000
	plumbline_server_info{node="n1",server="shop/pg-0",namespace="shop",pod="pg-0",pod_uid="uid-pod"} 1x1000
	server:volume:info{node="n1",server="shop/pg-0",volume="pvc-1"} 1x1000
`

// A stall is reported at once on claim and pod, and again when it has been gone for minutes.
func TestStall(t *testing.T) {
	s := newServer(t)
	w := newWriter(t, s, newStore(t, identities+`
		volume:verdict:confidence{reason="stall",volume="pvc-1",layer="replica",replica="r-2",culprit_node="n2"} _x10 1x3 _ 1x4 stale
		server:verdict:confidence{reason="stall",node="n1",server="shop/pg-0",volume="pvc-1",layer="replica",replica="r-2",culprit_node="n2"} _x10 1x3 _ 1x4 stale
	`))
	rounds(t, w, 0, 270)
	want(t, s.written())
	rounds(t, w, 300, 330)
	want(t, s.written(), "PersistentVolumeClaim shop/data-pg-0 Warning StorageStalled at 300", "Pod shop/pg-0 Warning StorageStalled at 300")
	rounds(t, w, 360, 1200)
	want(t, s.written(), "PersistentVolumeClaim shop/data-pg-0 Warning StorageStalled at 300", "Pod shop/pg-0 Warning StorageStalled at 300",
		"PersistentVolumeClaim shop/data-pg-0 Normal StorageResumed at 570", "Pod shop/pg-0 Normal StorageResumed at 570")
	for _, e := range s.events {
		if uid := map[string]string{"Pod": "uid-pod", "PersistentVolumeClaim": "uid-claim"}[e.InvolvedObject.Kind]; string(e.InvolvedObject.UID) != uid {
			t.Errorf("%s has the UID %q", e.InvolvedObject.Kind, e.InvolvedObject.UID)
		}
		if !strings.Contains(e.Message, "replica r-2, on n2") || e.Type == corev1.EventTypeNormal && !strings.Contains(e.Message, "ended after 4m30s") {
			t.Errorf("%s: %s", e.Reason, e.Message)
		}
		if e.Source.Component != "plumbline" || e.ReportingController != "plumbline" || e.ReportingInstance != "writer-0" {
			t.Errorf("written by %+v", e)
		}
	}
}

// What lasts for less than a minute is no trouble but for a stall, and what names no trouble is none.
func TestBriefAndHarmless(t *testing.T) {
	s := newServer(t)
	w := newWriter(t, s, newStore(t, identities+`
		volume:verdict:confidence{reason="replica",volume="pvc-1",layer="disk",replica="r-2"} _x10 0.9x1 stale
		volume:verdict:confidence{reason="largest",volume="pvc-1",layer="disk"} 0.2x100
		server:verdict:confidence{reason="rebuild",node="n1",server="shop/pg-0",volume="pvc-1"} 0.7x100
	`))
	rounds(t, w, 0, 1500)
	want(t, s.written())
}

// Each kind of verdict is reported under its reason: storage's on the claim, too. An unknown reason or layer is named.
func TestKinds(t *testing.T) {
	for _, c := range []struct {
		verdict, reason, words string
		claim                  bool
	}{
		{`reason="replica",layer="disk",replica="r-1",volume="pvc-1"`, "ReplicaSlow", "the disk below the slowest replica, replica r-1", true},
		{`reason="grown",layer="flush"`, "StorageSlow", "the device's cache flush", true},
		{`reason="grown",layer="sync"`, "StorageSlow", "sync", true},
		{`reason="neighbour",layer="device",device="sda",culprit_node="n1",kind="pod",user="backup/nightly"`, "StorageSlow",
			"device sda, on n1, much of its time is backup/nightly (pod)", true},
		{`reason="neighbour",layer="disk",replica="r-1",device="sda",culprit_node="n2",kind="pod",user="backup/nightly",volume="pvc-1"`, "ReplicaSlow",
			"replica r-1, device sda, on n2, much of its time is backup/nightly (pod)", true},
		{`reason="grown",layer="cpu"`, "StatementsSlow", "work on a CPU", false},
		{`reason="grown",layer="cache"`, "StorageSlow", "the layer cache", true},
		{`reason="host"`, "StatementsSlow", "reason host", false},
		{`reason="moon"`, "StatementsSlow", "reason moon", false},
		{`reason="lock",layer="wait"`, "LockWait", "waiting for others", false},
		{`reason="cpu",layer="runqueue"`, "CPUWait", "waiting for a CPU", false},
	} {
		s := newServer(t)
		w := newWriter(t, s, newStore(t, identities+fmt.Sprintf("\tserver:verdict:confidence{node=\"n1\",server=\"shop/pg-0\",%s} _x10 0.5x100\n", c.verdict)))
		rounds(t, w, 0, 600)
		var expect []string
		if c.claim {
			expect = []string{"PersistentVolumeClaim shop/data-pg-0 Warning " + c.reason + " at 300"}
		}
		want(t, s.written(), append(expect, "Pod shop/pg-0 Warning "+c.reason+" at 300")...)
		for _, e := range s.events {
			if !strings.Contains(e.Message, c.words) {
				t.Errorf("%s: %s", c.verdict, e.Message)
			}
		}
	}
}

// A replica's slow disk and who keeps it busy are one event, which names both, also without why's sentence.
func TestNeighbour(t *testing.T) {
	s := newServer(t)
	place := `volume="pvc-1",layer="disk",replica="r-2",device="sda",culprit_node="n2"`
	w := newWriter(t, s, newStore(t, identities+`
		volume:verdict:confidence{reason="replica",`+place+`} _x10 0.9x100
		volume:verdict:confidence{reason="neighbour",`+place+`,kind="pod",user="backup/nightly"} _x12 0.75x100
	`))
	rounds(t, w, 0, 1500)
	want(t, s.written(), "PersistentVolumeClaim shop/data-pg-0 Warning ReplicaSlow at 300")
	const words = "the disk below the slowest replica, replica r-2, device sda, on n2, much of its time is backup/nightly (pod). kubectl plumbline why data-pg-0 -n shop"
	for _, e := range s.events {
		if e.Message != words {
			t.Errorf("got %q, want %q", e.Message, words)
		}
	}
}

// A writer that is started again, or a second one, writes nothing twice.
func TestStartedAgain(t *testing.T) {
	s := newServer(t)
	series := newStore(t, identities+`
		volume:verdict:confidence{reason="stall",volume="pvc-1",layer="device"} _x10 1x20 stale
		volume:verdict:confidence{reason="replica",volume="pvc-1",layer="disk",replica="r-2"} _x60 0.9x40
	`)
	for from := 0; from < 2400; from += 600 {
		rounds(t, newWriter(t, s, series), from, from+600)
	}
	want(t, s.written(), "PersistentVolumeClaim shop/data-pg-0 Warning StorageStalled at 300", "PersistentVolumeClaim shop/data-pg-0 Normal StorageResumed at 900",
		"PersistentVolumeClaim shop/data-pg-0 Warning ReplicaSlow at 1800")
}

// What continues is reported again each hour, as the API server keeps an event for an hour; by a new writer, too.
func TestEachHour(t *testing.T) {
	s := newServer(t)
	series := newStore(t, identities+`
		volume:verdict:confidence{reason="stall",volume="pvc-1",layer="device"} _x10 1x500 stale
	`)
	w := newWriter(t, s, series)
	rounds(t, w, 0, 8000)
	rounds(t, newWriter(t, s, series), 8030, 12000)
	var warnings, rest []string
	for _, e := range s.written() {
		if strings.Contains(e, "Warning") {
			warnings = append(warnings, e)
		} else {
			rest = append(rest, e)
		}
	}
	// At 300; an hour later; and then at least each hour to the end at 15300.
	if len(warnings) < 4 || len(warnings) > 5 {
		t.Errorf("%d warnings in 3.25 hours: %q", len(warnings), warnings)
	}
	want(t, rest)
	rounds(t, w, 12030, 16000)
	if last := s.written()[len(s.written())-1]; last != "PersistentVolumeClaim shop/data-pg-0 Normal StorageResumed at 15300" {
		t.Error(last)
	}
	for _, e := range s.events {
		if e.FirstTimestamp.Unix() > 4000 && !strings.Contains(e.Message, "more than 1h") {
			t.Error(e.Message)
		}
	}
}

// An API server, or a Prometheus, that is away loses nothing for an hour; what it loses afterwards is counted.
func TestAway(t *testing.T) {
	s := newServer(t)
	series := newStore(t, identities+`
		volume:verdict:confidence{reason="stall",volume="pvc-1",layer="device"} _x10 1x20 stale
		volume:verdict:confidence{reason="stall",volume="pvc-1",layer="device"} _x400 1x20 stale
	`)
	w := newWriter(t, s, series)
	s.answer = func(corev1.Event) int { return http.StatusServiceUnavailable }
	failed := 0
	for at := 0; at < 2400; at += 30 {
		if w.Round(t.Context(), time.Unix(int64(at), 0)) != nil {
			failed++
		}
	}
	if failed == 0 || len(s.events) > 0 || testutil.ToFloat64(w.pending) != 2 || testutil.ToFloat64(w.failed) != float64(failed) {
		t.Errorf("%d rounds failed, %d events, %v pending", failed, len(s.events), testutil.ToFloat64(w.pending))
	}
	s.answer = nil
	series.err = io.ErrUnexpectedEOF
	if w.Round(t.Context(), at(2400)) == nil {
		t.Error("nothing is wrong without Prometheus")
	}
	series.err = nil
	rounds(t, w, 2430, 2460)
	want(t, s.written(), "PersistentVolumeClaim shop/data-pg-0 Warning StorageStalled at 300", "PersistentVolumeClaim shop/data-pg-0 Normal StorageResumed at 900")
	if n := testutil.ToFloat64(w.lost.WithLabelValues(lostLate)); n != 0 || testutil.ToFloat64(w.pending) != 0 {
		t.Errorf("%v are lost", n)
	}

	s.answer = func(corev1.Event) int { return http.StatusServiceUnavailable }
	for at := 12000; at < 18000; at += 30 {
		_ = w.Round(t.Context(), time.Unix(int64(at), 0))
	}
	if n := testutil.ToFloat64(w.lost.WithLabelValues(lostLate)); n != 2 {
		t.Errorf("%v are lost, want beginning and end", n)
	}
}

// A user who can name a volume or a claim reaches no other path and no terminal, and blocks nothing else.
func TestHostile(t *testing.T) {
	s := newServer(t)
	s.answer = func(e corev1.Event) int {
		if e.InvolvedObject.Name == "refused" {
			return http.StatusUnprocessableEntity
		}
		if e.Namespace == "gone" {
			return http.StatusNotFound
		}
		return http.StatusCreated
	}
	w := newWriter(t, s, newStore(t, identities+`
		plumbline_volume_info{volume="a",namespace="shop/../kube-system",persistentvolumeclaim="x"} 1x1000
		plumbline_volume_info{volume="b",namespace="shop",persistentvolumeclaim="x/../../secrets"} 1x1000
		plumbline_volume_info{volume="c",namespace="gone",persistentvolumeclaim="x"} 1x1000
		plumbline_volume_info{volume="d",namespace="shop",persistentvolumeclaim="refused"} 1x1000
		volume:verdict:confidence{reason="stall",volume="a"} 1x100
		volume:verdict:confidence{reason="stall",volume="b"} 1x100
		volume:verdict:confidence{reason="stall",volume="c"} 1x100
		volume:verdict:confidence{reason="stall",volume="d"} 1x100
		volume:verdict:confidence{reason="stall",volume="unknown"} 1x100
		volume:verdict:confidence{reason="stall",volume="pvc-1",layer="\u001b[31m\n",replica="`+strings.Repeat("é", 2000)+`"} _x10 1x100
	`))
	rounds(t, w, 0, 600)
	want(t, s.written(), "PersistentVolumeClaim shop/data-pg-0 Warning StorageStalled at 300")
	for _, e := range s.events {
		if strings.ContainsAny(e.Message, "\x1b\n") || len(e.Message) > mostMessage || !strings.Contains(e.Message, "é…. kubectl plumbline why data-pg-0 -n shop") {
			t.Errorf("%q", e.Message)
		}
	}
	for reason, n := range map[string]float64{lostName: 2, lostGone: 1, lostBad: 1, lostLate: 0} {
		if got := testutil.ToFloat64(w.lost.WithLabelValues(reason)); got != n {
			t.Errorf("%v lost for %s, want %v", got, reason, n)
		}
	}
}

// A cluster's worth of verdicts at once is written in turns, the surest first.
func TestMany(t *testing.T) {
	var series strings.Builder
	for i := range 250 {
		confidence := 0.9
		if i >= 200 {
			confidence = 1
		}
		fmt.Fprintf(&series, "\tplumbline_volume_info{volume=\"v%d\",namespace=\"shop\",persistentvolumeclaim=\"c%d\"} 1x100\n\tvolume:verdict:confidence{reason=\"stall\",volume=\"v%d\"} _x10 %vx100\n", i, i, i, confidence)
	}
	s := newServer(t)
	w := newWriter(t, s, newStore(t, series.String()))
	rounds(t, w, 300, 300)
	if len(s.order) != mostAtOnce || testutil.ToFloat64(w.pending) != 150 {
		t.Fatalf("%d events in a round, %v pending", len(s.order), testutil.ToFloat64(w.pending))
	}
	sure := 0
	for _, name := range s.order[:50] {
		if n := strings.TrimPrefix(s.events[name].InvolvedObject.Name, "c"); len(n) == 3 && n >= "200" {
			sure++
		}
	}
	if sure != 50 {
		t.Errorf("%d of the first 50 are of the surest verdicts", sure)
	}
	rounds(t, w, 330, 360)
	if len(s.order) != 250 || testutil.ToFloat64(w.pending) != 0 {
		t.Errorf("%d events, %v pending", len(s.order), testutil.ToFloat64(w.pending))
	}
}

// A store of several clusters may have claims of the same name in each: only those of one are written, which is named.
func TestOneCluster(t *testing.T) {
	series := newStore(t, `
		plumbline_volume_info{cluster="a",volume="v",namespace="shop",persistentvolumeclaim="of-a"} 1x100
		plumbline_volume_info{cluster="b",volume="v",namespace="shop",persistentvolumeclaim="of-b"} 1x100
		volume:verdict:confidence{cluster="a",reason="stall",volume="v"} _x10 1x100
		volume:verdict:confidence{cluster="b",reason="stall",volume="v"} _x10 1x100
	`)
	s := newServer(t)
	if err := newWriter(t, s, series).Round(t.Context(), at(600)); err == nil || !strings.Contains(err.Error(), "--cluster") {
		t.Errorf("of two clusters: %v", err)
	}
	rounds(t, newWriter(t, s, why.Within(series, "b")), 300, 600)
	want(t, s.written(), "PersistentVolumeClaim shop/of-b Warning StorageStalled at 300")
}

// Without the rules there is no verdict, which is no peace.
func TestNoRules(t *testing.T) {
	s := newServer(t)
	w := newWriter(t, s, newStore(t, strings.Replace(identities, "threshold:", "other:", 1)))
	if err := w.Round(t.Context(), at(600)); err == nil || !strings.Contains(err.Error(), "rules") || testutil.ToFloat64(w.failed) != 1 {
		t.Errorf("without rules: %v", err)
	}
}

// The name is one that Kubernetes takes, whatever the object's is.
func TestName(t *testing.T) {
	for _, name := range []string{"a", strings.Repeat("a", 253), strings.Repeat("a", 199) + "." + strings.Repeat("b", 53)} {
		e := Event{Object: Object{Namespace: "n", Name: name, Kind: podKind}}
		u := url.URL{Path: e.name()}
		if got := e.name(); len(got) > 253 || u.EscapedPath() != got || strings.Contains(got, "..") {
			t.Errorf("%q", got)
		}
	}
}
