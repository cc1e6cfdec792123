package why

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules/why/whytest"
)

func find(t *testing.T, l *whytest.Lab, s Subject) *Finding {
	t.Helper()
	f, err := Find(t.Context(), l.Record(), s, whytest.End, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// older knows no functions of native histograms, as VictoriaMetrics.
type older struct{ API }

func (o older) Query(ctx context.Context, query string, at time.Time, options ...promv1.Option) (model.Value, promv1.Warnings, error) {
	if strings.Contains(query, "histogram_count") || strings.Contains(query, "histogram_avg") || strings.Contains(query, "histogram_sum") {
		return nil, nil, errors.New("unknown function")
	}
	return o.API.Query(ctx, query, at, options...)
}

// A scrape that fails, as on a node short of CPU, hides no server.
func TestMissedScrape(t *testing.T) {
	l := whytest.Healthy()
	l.More = func(r *whytest.Recording) {
		r.Gauge(`server:address:info{server="r3",node="n",address="10.0.0.3",port="5432"}`, 1)
	}
	r := l.Record()
	r.MissScrape("server:", "plumbline_volume_info")
	for _, s := range []Subject{{Class: "r3"}, {Server: "r3"}, {Address: "10.0.0.3:5432"}, {Volume: "v-r3"}, {Namespace: "lab", Claim: "data-r3"}} {
		f, err := Find(t.Context(), r, s, whytest.End, 20*time.Second)
		if err != nil || f.Servers != 1 || f.Target.Server != "r3" || f.Target.Volume != "v-r3" {
			t.Errorf("%s: %+v, %v", s, f, err)
		}
	}
}

// Checked takes each scenario's finding; document_test.go sets it, of what depends on this package.
var Checked func(*testing.T, *Finding)

// Each scenario ends in the words that name what was done, and in no others'.
func TestScenarios(t *testing.T) {
	for name, scenario := range map[string]struct {
		class   string
		make    func(l *whytest.Lab)
		kind    Reason
		layer   string
		replica string
		words   string
	}{
		"healthy": {"r3", func(*whytest.Lab) {}, Largest, "sync", "", ""},
		"slow replica, its process stopped half of the time": {"r3", func(l *whytest.Lab) {
			l.Trip["r3-2"], l.Device["r3"], l.Commit["r3"]["sync"] = 11, 14, 15
			l.More = func(r *whytest.Recording) {
				r.Add(`plumbline_replica_service_unread_bytes{volume="v-r3",address="127.0.0.2:10000"}`, func(i int, s *whytest.Point) { s.Value = float64(i%2) * 4096 })
			}
		}, SlowReplica, "replica", "r3-2",
			"r3 commits take 7.3 times local's: of 16 ms, 15 wait for sync; a write takes 14 ms, of which the slowest replica 11, the kernel's queue 1.4; " +
				"replica r3-2 stands out: a write takes 11 ms there and 1.5 on the others; 4.1 kB of requests or more lay there unread in a fifth of the samples: its process does not get to them, it is not its disk or the network"},
		"slow network": {"r3", func(l *whytest.Lab) { l.Trip["r3-2"], l.Device["r3"] = 11, 14 }, SlowReplica, "network", "r3-2", ""},
		"slow disk": {"r3", func(l *whytest.Lab) {
			l.Trip["r3-3"], l.Service["r3-3"], l.Disk["r3-3"], l.Device["r3"] = 21, 20, 19, 24
		}, SlowReplica, "disk", "r3-3", ""},
		"two of three replicas stopped now and then": {"r3", func(l *whytest.Lab) {
			l.Trip["r3-1"], l.Trip["r3-2"], l.Trip["r3-3"], l.Device["r3"], l.Commit["r3"]["sync"] = 61, 60, 1.2, 64, 70
			l.More = func(r *whytest.Recording) {
				for _, address := range []string{"127.0.0.1:10000", "127.0.0.2:10000"} {
					r.Add(`plumbline_storage_process_stopped_seconds{volume="v-r3",address="`+address+`",role="replica",node="n"}`, func(i int, s *whytest.Point) { s.Value = 0.09 * float64(i%2) })
				}
			}
		}, SlowReplica, "replica", "r3-1", "r3 commits take 32 times local's: of 71 ms, 70 wait for sync; a write takes 64 ms, of which the slowest replica 61, the kernel's queue 6.4; " +
			"replicas r3-1 and r3-2 stand out: a write takes 61 and 60 ms there and 1.2 on the others; r3-1: its process was stopped for 90 ms or more in a fifth of the " +
			"samples, with requests waiting for it: it is the process, not its disk or the network; r3-2: its process was stopped for 90 ms or more in a fifth of the " +
			"samples, with requests waiting for it: it is the process, not its disk or the network"},
		"all three replicas' disks": {"r3", func(l *whytest.Lab) {
			for _, name := range []string{"r3-1", "r3-2", "r3-3"} {
				l.Trip[name], l.Service[name], l.Disk[name] = 21, 20, 19
			}
			l.Device["r3"], l.Commit["r3"]["sync"] = 24, 26
		}, Largest, "disk", "r3-1", "r3 commits take 12 times local's: of 27 ms, 26 wait for sync; a write takes 24 ms, of which the slowest replica 21; " +
			"most of it is the disk below the slowest replica; no replica stands out, all are slow; a write takes 21 ms on replica r3-1: 19 ms of it are disk-r3-1's, the disk below it on n; " +
			"a write takes 21 ms on replica r3-2: 19 ms of it are disk-r3-2's, the disk below it on n; a write takes 21 ms on replica r3-3: 19 ms of it are disk-r3-3's, the disk below it on n"},
		"a slow way to all three": {"r3", func(l *whytest.Lab) {
			for i, name := range []string{"r3-1", "r3-2", "r3-3"} {
				l.Trip[name] = 21 - float64(i)
			}
			l.Device["r3"], l.Commit["r3"]["sync"] = 24, 26
		}, Largest, "network", "r3-1", "r3 commits take 12 times local's: of 27 ms, 26 wait for sync; a write takes 24 ms, of which the slowest replica 21; " +
			"most of it is the network to the slowest replica; no replica stands out, all are slow; a write takes 21 ms on replica r3-1: 20 ms of it pass between the engine and the replica, " +
			"1.0 within it: the network, or a process that does not get to read; in the same way 20 ms on r3-2 and 19 ms on r3-3"},
		"a slow way to two": {"r3", func(l *whytest.Lab) {
			l.Trip["r3-1"], l.Trip["r3-2"], l.Device["r3"], l.Commit["r3"]["sync"] = 12, 11, 15, 16
			// Now and then a sample meets megabytes that have just come.
			l.More = func(r *whytest.Recording) {
				r.Add(`plumbline_replica_service_unread_bytes{volume="v-r3",address="127.0.0.1:10000"}`, func(i int, s *whytest.Point) {
					if i%10 == 0 {
						s.Value = 1 << 20
					}
				})
			}
		}, SlowReplica, "network", "r3-1", ""},
		"two slow replicas beside a busy CPU": {"r3", func(l *whytest.Lab) {
			l.Commit["r3"]["runqueue"], l.Commit["local"]["runqueue"] = 60, 60
			l.Trip["r3-1"], l.Trip["r3-2"], l.Device["r3"], l.Commit["r3"]["sync"] = 12, 11, 15, 16
		}, SlowReplica, "network", "r3-1", ""},
		"slow network before the engine": {"local", func(l *whytest.Lab) {
			l.Device["local"], l.Commit["local"]["sync"] = 24, 26
			l.More = func(r *whytest.Recording) {
				r.Times(`plumbline_volume_path_seconds{volume="v-local",path="10.0.0.2:3260",backend="cstor",op="write"}`, 50, 0.020)
				r.Times(`plumbline_volume_target_seconds{volume="v-local",backend="cstor",op="write"}`, 50, 0.004)
			}
		}, Largest, "path", "", "local (the control) commits take 27 ms, of which 26 wait for sync; a write takes 24 ms, of which the network to the engine 16, the engine 4.0; " +
			"most of it is the network to the engine"},
		"writes of a replica limited": {"r3", func(l *whytest.Lab) {
			l.Trip["r3-3"], l.Service["r3-3"], l.Device["r3"] = 31, 30, 34
		}, SlowReplica, "replica", "r3-3", ""},
		"the only replica's disk": {"r1", func(l *whytest.Lab) {
			l.Trip["r1-1"], l.Service["r1-1"], l.Disk["r1-1"], l.Device["r1"], l.Commit["r1"]["sync"] = 21, 20, 19, 24, 26
		}, Largest, "disk", "r1-1", ""},
		"CPU hog": {"local", func(l *whytest.Lab) {
			l.Commit["local"]["runqueue"], l.Commit["r3"]["runqueue"] = 12, 12
			l.More = func(r *whytest.Recording) { r.Counter(`node_pressure_cpu_waiting_seconds_total{node="n"}`, 0.97) }
		}, CPU, "runqueue", "", "local (the control) commits take 14 ms, of which 12 wait for a CPU; a write takes 0.60 ms, of which the device dev-local 0.54, the kernel's queue 0.060; " +
			"host n is short of CPU: a commit waits 12 of its 14 ms for one; something waited for one 97 % of the time; storage is not to blame"},
		"CPU hog, seen at the control": {"r3", func(l *whytest.Lab) { l.Commit["local"]["runqueue"] = 12 }, CPU, "runqueue", "", ""},
		"CPU hog beside a slow replica": {"r3", func(l *whytest.Lab) {
			l.Commit["local"]["runqueue"], l.Trip["r3-2"], l.Device["r3"], l.Commit["r3"]["sync"] = 12, 11, 14, 40
		}, SlowReplica, "network", "r3-2", ""},
		"CPU hog beside a class much slower than the control": {"r3", func(l *whytest.Lab) {
			l.Commit["local"]["runqueue"], l.Commit["r3"]["sync"] = 12, 40
		}, Largest, "device", "", "r3 commits take 2.9 times local's: of 41 ms, 40 wait for sync; a write takes 4.4 ms, of which the way to the engine 1.7, the slowest replica 1.6, the engine 0.70; " +
			"most of it is the way to the engine; no replica stands out; besides, host n is short of CPU"},
		"lock storm": {"r1", func(l *whytest.Lab) {
			l.Statement["r1"]["wait"] = 60
			l.More = func(r *whytest.Recording) { r.Gauge(`plumbline_query_blocked{server="r1",node="n"}`, 2.5) }
		}, Lock, "wait", "", ""},
		"a table locked for good": {"r1", func(l *whytest.Lab) {
			l.PerSecond["r1"] = 0
			l.More = func(r *whytest.Recording) {
				r.Gauge(`plumbline_query_blocked{server="r1",node="n"}`, 4)
				r.Gauge(`plumbline_query_blocked_oldest_seconds{server="r1",node="n"}`, 23)
			}
		}, Lock, "wait", "", "r1: 4.0 statements wait for another session's lock, the oldest for 23 s; storage is not to blame; no statement ended in the last 20 s"},
		"a slow disk whose commits hold locks long": {"r3", func(l *whytest.Lab) {
			l.Trip["r3-3"], l.Service["r3-3"], l.Device["r3"] = 52, 51, 58
			l.Commit["r3"]["wait"], l.Commit["r3"]["sync"], l.Statement["r3"]["wait"] = 56, 20, 3
			l.More = func(r *whytest.Recording) { r.Gauge(`plumbline_query_blocked{server="r3",node="n"}`, 0.6) }
		}, SlowReplica, "replica", "r3-3", ""},
		"commits that wait for each other's sync": {"r3", func(l *whytest.Lab) { l.Commit["r3"]["wait"] = 9 }, Largest, "device", "", ""},
		"a replica twice as slow on a host short of CPU": {"r3", func(l *whytest.Lab) {
			l.Commit["local"]["runqueue"], l.Commit["r3"]["sync"], l.Trip["r3-2"] = 12, 30, 4
		}, Largest, "network", "", ""},
		"the first seconds of a stall": {"r3", func(l *whytest.Lab) {
			l.More = func(r *whytest.Recording) {
				for _, command := range []string{"commit", "other"} {
					r.Counter(`plumbline_query_phase_seconds_total{server="r3",node="n",command="`+command+`",phase="wait"}`, 3)
					r.Counter(`plumbline_query_phase_seconds_total{server="r3",node="n",command="`+command+`",phase="sync"}`, 1)
				}
				r.Gauge(`plumbline_query_blocked{server="r3",node="n"}`, 1)
				r.Gauge(`plumbline_server_longest_wait_seconds{server="r3",node="n",phase="sync"}`, 4)
				r.Gauge(`plumbline_server_longest_wait_seconds{server="r3",node="n",phase="write"}`, 3)
			}
		}, Stalled, "file_system", "", "r3: a process of the server has been in one sync for 4 s, and commits do not end"},
		"the first seconds of a lock that all wait for": {"r3", func(l *whytest.Lab) {
			l.More = func(r *whytest.Recording) {
				for _, command := range []string{"commit", "other"} {
					r.Counter(`plumbline_query_phase_seconds_total{server="r3",node="n",command="`+command+`",phase="wait"}`, 3)
				}
				r.Gauge(`plumbline_query_blocked{server="r3",node="n"}`, 3)
				r.Gauge(`plumbline_server_longest_wait_seconds{server="r3",node="n",phase="sync"}`, 0.004)
			}
		}, Lock, "wait", "", ""},
		"waiting without a lock": {"r1", func(l *whytest.Lab) { l.Statement["r1"]["wait"], l.Commit["r1"]["wait"] = 60, 60 }, Largest, "wait", "", ""},
		"stalled disk": {"r3", func(l *whytest.Lab) {
			l.PerSecond["r3"] = 0
			l.More = func(r *whytest.Recording) {
				r.Gauge(`volume:stalled_seconds:max{volume="v-r3",layer="device",node="n",device="dev-r3"}`, 23)
				r.Gauge(`ALERTS{alertname="DeviceStalled",alertstate="firing",severity="critical",volume="v-r3",node="n",device="dev-r3"}`, 1)
				r.Gauge(`ALERTS{alertname="CanarySlow",alertstate="firing",severity="warning",storageclass="r1",node="n"}`, 1)
			}
		}, Stalled, "device", "", "r3: it is stalled: its block device dev-r3 on n has completed nothing, and nothing below it is known to be stalled, for 23 s; " +
			"no statement ended in the last 20 s; firing: DeviceStalled"},
		"too few": {"r1", func(l *whytest.Lab) { l.PerSecond["r1"] = 0.5 }, Few, "", "", "r1: only 10 commits ended in the last 20 s: too few to judge"},
	} {
		t.Run(name, func(t *testing.T) {
			l := whytest.Healthy()
			scenario.make(l)
			f := find(t, l, Subject{Class: scenario.class})
			Checked(t, f)
			v := f.Verdict
			if v.Reason != scenario.kind || v.Layer != scenario.layer && scenario.layer != "sync" || scenario.replica != "" && v.Replica != scenario.replica {
				t.Errorf("verdict %+v; want %s, layer %q, replica %q", v, scenario.kind, scenario.layer, scenario.replica)
			}
			if words := f.Words(); scenario.words != "" && words != scenario.words {
				t.Errorf("words\n%s\nwant\n%s", words, scenario.words)
			}
			// Where histograms are classic the same is found.
			l.Classic = true
			if c, err := Find(t.Context(), older{l.Record()}, Subject{Class: scenario.class}, whytest.End, 20*time.Second); err != nil {
				t.Errorf("where native histograms are not known: %v", err)
			} else if c.Words() != find(t, l, Subject{Class: scenario.class}).Words() {
				t.Errorf("where native histograms are not known:\n%s", c.Words())
			}
			if c := find(t, l, Subject{Class: scenario.class}); c.Verdict.Reason != v.Reason || c.Verdict.Layer != v.Layer || c.Verdict.Replica != v.Replica || math.Abs(c.Commits.Mean-f.Commits.Mean) > 1e-6 {
				t.Errorf("by classic histograms:\n%s\nby native ones:\n%s", c.Words(), f.Words())
			}
			// Bars and the long form have a line for each and end without a panic.
			var b strings.Builder
			PlainPrinter(&b).Why(f)
			// Statements under way have phases and no duration yet: the text must mention it where they are most of the
			// time.
			if open := strings.Contains(b.String(), "those that have not ended"); open != (name == "the first seconds of a stall" || name == "the first seconds of a lock that all wait for") {
				t.Errorf("statements that have not ended: %v\n%s", open, b.String())
			}
			PlainPrinter(&b).Stacks([]*Finding{f})
			PlainPrinter(&b).Words(f)
			t.Log(b.String())
			if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "?") && !strings.Contains(b.String(), "does the agent") {
				t.Errorf("a figure that is not known is shown:\n%s", b.String())
			}
		})
	}
}

// The sentence of the README, and a bar's columns that add up.
func TestHealthyWords(t *testing.T) {
	f := find(t, whytest.Healthy(), Subject{Class: "r3"})
	want := "r3 commits take 2.6 times local's: of 5.7 ms, 4.6 wait for sync; a write takes 4.4 ms, of which the way to the engine 1.7, the slowest replica 1.6, the engine 0.70; " +
		"most of it is the way to the engine; no replica stands out"
	if words := f.Words(); words != want {
		t.Errorf("words\n%s\nwant\n%s", words, want)
	}
	if got, want := sum(f.Commits.Layers), f.Commits.Mean; got/want < 0.999 || got/want > 1.001 {
		t.Errorf("the layers of a commit add up to %v, want %v", got, want)
	}
	if got, want := sum(f.Write.Layers), f.Write.Total; got/want < 0.999 || got/want > 1.001 {
		t.Errorf("the layers of a write add up to %v, want %v", got, want)
	}
	if bar := PlainPrinter(nil).stack(f.Commits.Layers, 40); len(bar) != 40 {
		t.Errorf("a bar of 40 columns has %d: %s", len(bar), bar)
	}
}

// A phase of statements that have not ended yet can exceed the mean of those that have: the text has no such parts of a
// whole.
func TestPhaseExceedsMean(t *testing.T) {
	f := find(t, whytest.Healthy(), Subject{Class: "r3"})
	for i, p := range f.Commits.Phases {
		if p.Name == "sync" {
			f.Commits.Phases[i].Seconds = 1.2 * f.Commits.Mean
		}
	}
	share := 100 * seconds(f.Commits.Phases, "sync") / sum(f.Commits.Phases)
	if words, want := f.Words(), fmt.Sprintf("of 5.7 ms, %.0f %% wait for sync;", share); !strings.Contains(words, want) || share >= 100 {
		t.Errorf("words %q, want in them %q", words, want)
	}
	if words, want := f.Commits.spends("sync"), fmt.Sprintf("%.0f %% of its time", share); words != want {
		t.Errorf("a commit spends %q, want %q", words, want)
	}
}

// The same target by each of its names. The error for one that is not there names those that are.
func TestSubjects(t *testing.T) {
	l := whytest.Healthy()
	// One server is at an address of its own, another one on no volume that is known.
	l.More = func(r *whytest.Recording) {
		r.Gauge(`server:address:info{server="r3",node="n",address="10.0.0.3",port="5432"}`, 1)
		r.Gauge(`server:address:info{server="machine",node="n",address="fd00::1",port="5432"}`, 1)
		r.Gauge(`plumbline_server_info{server="machine",node="n",db_system="postgresql"}`, 1)
		r.Gauge(`plumbline_server_info{server="r3",node="n",db_system="postgresql"}`, 1)
	}
	for want, s := range map[string]Subject{"machine": {Server: "machine"}, "server at [fd00::1]:5432": {Address: "[fd00::1]:5432"}} {
		if f := find(t, l, s); f.Target != (Target{Node: "n", Server: "machine", Engine: "postgresql"}) || !slices.Contains(f.Missing(), "its volume") || f.Name() != "machine" || s.String() != want && s.Server == "" {
			t.Errorf("%s: target %+v, called %s", s, f.Target, f.Name())
		}
	}
	if f := find(t, l, Subject{Address: "10.0.0.3:5432"}); f.Target.Volume != "v-r3" || f.Target.Server != "r3" || f.Servers != 1 || f.Name() != "r3" {
		t.Errorf("by its address: %+v of %d, called %s", f.Target, f.Servers, f.Name())
	}
	if _, err := Find(t.Context(), l.Record(), Subject{Address: "10.0.0.4:5432"}, whytest.End, time.Minute); !errors.Is(err, ErrUnknown) {
		t.Errorf("an address that nobody has gave %v", err)
	}
	for want, s := range map[string]Subject{
		"lab/data-r3": {Namespace: "lab", Claim: "data-r3"}, "lab/r3-pg": {Namespace: "lab", Pod: "r3-pg"}, "r3": {Server: "r3"}, "v-r3": {Volume: "v-r3"},
	} {
		f := find(t, l, s)
		if f.Target.Volume != "v-r3" || f.Target.Server != "r3" || f.Name() != want {
			t.Errorf("%s: target %+v, called %s; want volume v-r3, called %s", s, f.Target, f.Name(), want)
		}
	}
	_, err := Find(t.Context(), l.Record(), Subject{Namespace: "lab", Claim: "data-r4"}, whytest.End, time.Minute)
	if !errors.Is(err, ErrUnknown) || !strings.Contains(err.Error(), "lab/data-r3 (class r3)") {
		t.Errorf("an unknown claim gave %v", err)
	}
	if classes, err := Classes(t.Context(), l.Record(), whytest.End); err != nil || !slices.Equal(classes, []string{"local", "r1", "r3"}) {
		t.Errorf("classes %v, %v", classes, err)
	}
}

// Of several servers of a class, the finding names the one with the slowest commits.
func TestSlowestOfAClass(t *testing.T) {
	r := whytest.Healthy().Record()
	for _, server := range []string{"a-fast", "b-slow"} {
		of := `server="` + server + `",node="m",db_system="postgresql"`
		r.Gauge(`server:volume:info{`+of+`,volume="v-`+server+`",storageclass="many",namespace="s",persistentvolumeclaim="c"}`, 1)
		r.Gauge(`plumbline_volume_info{node="m",volume="v-`+server+`",storageclass="many",namespace="s",persistentvolumeclaim="c",device="d"}`, 1)
		r.Times(`plumbline_query_duration_seconds{`+of+`,command="commit"}`, 10, map[string]float64{"a-fast": 0.001, "b-slow": 0.01}[server])
	}
	f, err := Find(t.Context(), r, Subject{Class: "many"}, whytest.End, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	if want := "many (b-slow on m, the slowest of 2 servers) commits take 10 ms (no control class to compare with)"; !strings.HasPrefix(f.Words(), want) {
		t.Errorf("words\n%s\nwant\n%s…", f.Words(), want)
	}
}

// A finding describes a volume without a database by its writes; a name's control characters do not reach a terminal.
func TestVolumeAlone(t *testing.T) {
	r := whytest.Healthy().Record()
	r.Without("server:")
	r.Gauge(`plumbline_volume_replica_info{volume="v-r3",replica="\u001b[2Jgone",address="",node="n",device=""}`, 1)
	f, err := Find(t.Context(), r, Subject{Namespace: "lab", Claim: "data-r3"}, whytest.End, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	Checked(t, f)
	want := "lab/data-r3: no database server is known on it; a write takes 4.4 ms, of which the way to the engine 1.7, the slowest replica 1.6, the engine 0.70; " +
		"most of it is the way to the engine; no replica stands out"
	if f.Words() != want {
		t.Errorf("words\n%s\nwant\n%s", f.Words(), want)
	}
	if have := Clean("a\x1b[2J\u202eb c"); have != "a?[2J?b c" {
		t.Errorf("cleaned: %q", have)
	}
}

// A replica that was started again has two addresses for some minutes: it is one replica, and most of its writes count.
func TestReplicaStartedAgain(t *testing.T) {
	r := whytest.Healthy().Record()
	const before = `volume="v-r3",address="127.0.0.9:10000",backend="b"`
	r.Gauge(`plumbline_volume_replica_info{volume="v-r3",replica="r3-1",address="127.0.0.9:10000",node="n",device="disk-r3-1"}`, 1)
	r.Times(`plumbline_replica_request_duration_seconds{`+before+`,op="write"}`, 1, 0.5)
	r.Times(`plumbline_replica_service_seconds{`+before+`,op="write"}`, 1, 0.4)
	f, err := Find(t.Context(), r, Subject{Namespace: "lab", Claim: "data-r3"}, whytest.End, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	Checked(t, f)
	var names []string
	for _, one := range f.Replicas {
		names = append(names, one.Name)
		if one.Time() > 0.01 {
			t.Errorf("a write to %s at %s takes %v s", one.Name, one.Address, one.Time())
		}
	}
	if want := []string{"r3-1", "r3-2", "r3-3"}; !slices.Equal(names, want) {
		t.Errorf("replicas %q, want %q", names, want)
	}
}

// A phase and a stalled layer that this version does not know are shown under their own names, and none is dropped.
func TestUnknownLayers(t *testing.T) {
	l := whytest.Healthy()
	l.Commit["r3"]["gpu"] = 9
	f := find(t, l, Subject{Class: "r3"})
	var b strings.Builder
	PlainPrinter(&b).Why(f)
	Checked(t, f)
	PlainPrinter(&b).Stacks([]*Finding{f})
	for _, want := range []string{"9.0 are of the phase gpu", "most of it is the layer gpu", "\n  gpu ", "????", "? gpu"} {
		if !strings.Contains(f.Words()+b.String(), want) {
			t.Errorf("%q is missing:\n%s", want, b.String())
		}
	}
	if f.Verdict.Layer != "gpu" {
		t.Errorf("verdict %+v", f.Verdict)
	}
	l.More = func(r *whytest.Recording) {
		r.Gauge(`volume:stalled_seconds:max{volume="v-r3",layer="fabric",node="n",device=""}`, 23)
	}
	if v := find(t, l, Subject{Class: "r3"}).Verdict; v.Layer != "fabric" || !strings.Contains(v.Text, "the layer fabric has been stalled for 23 s") {
		t.Errorf("verdict %+v", v)
	}
}

// A finding reports what is not measured, and not as 0: no block times, no replicas on the wire, no control.
func TestMissing(t *testing.T) {
	r := whytest.Healthy().Record()
	r.Without("ebpf_exporter_blkio_", "plumbline_replica_", "plumbline_volume_frontend")
	f, err := Find(t.Context(), r, Subject{Class: "r3"}, whytest.End, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	Checked(t, f)
	var b strings.Builder
	PlainPrinter(&b).Why(f)
	for _, want := range []string{"its writes are not measured", "block times of device dev-r3", "times of its replicas"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is not printed:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "a write takes") || strings.Contains(b.String(), "stands out") {
		t.Errorf("something is printed about writes that nobody measured:\n%s", b.String())
	}
	r.Without("plumbline_query_")
	if f, err = Find(t.Context(), r, Subject{Class: "r3"}, whytest.End, 20*time.Second); err != nil {
		t.Fatal(err)
	}
	Checked(t, f)
	if want := "r3: no statement of r3 is measured: does the agent run on node n, with BPF?"; f.Words() != want {
		t.Errorf("words %q, want %q", f.Words(), want)
	}
}

// The queries that wait most for the layer to blame are named, and only these.
func TestQueriesThatWait(t *testing.T) {
	l := whytest.Healthy()
	l.Trip["r3-2"], l.Device["r3"], l.Commit["r3"]["sync"] = 11, 14, 15
	l.More = func(r *whytest.Recording) {
		for id, q := range map[string]struct{ perSecond, cpu, sync float64 }{ // ms
			"-81": {10, 2, 40}, "82": {10, 3, 9}, "83": {10, 0, 10}, "84": {10, 0, 8}, "85": {10, 100, 1}, "other": {10, 1, 32},
		} {
			of := `server="r3",node="n",db_system="postgresql",queryid="` + id + `"`
			r.CounterThen(`plumbline_query_id_statements_total{`+of+`}`, 5, q.perSecond)
			before := 5 * (q.cpu + q.sync) / 1000
			if id == "-81" {
				before = 5 * 0.002
			}
			r.CounterThen(`plumbline_query_id_phase_seconds_total{`+of+`,phase="cpu"}`, before, q.perSecond*q.cpu/1000)
			r.Counter(`plumbline_query_id_phase_seconds_total{`+of+`,phase="sync"}`, q.perSecond*q.sync/1000)
		}
		r.Counter(`plumbline_query_id_phase_seconds_total{server="r1",node="n",queryid="86",phase="sync"}`, 5)
	}
	f := find(t, l, Subject{Class: "r3"})
	Checked(t, f)
	const want = "; waiting most for it, by queryid: -81 (40 of its 42 ms, which were 2.0 an hour before; 40 % of all), 83 (10 of its 10 ms; 10 % of all), 82 (9.0 of its 12 ms; 9 % of all)"
	if words := f.Words(); f.Verdict.Reason != SlowReplica || !strings.Contains(words, want) {
		t.Errorf("%v: %s\nwant %s", f.Verdict, words, want)
	}
	if f = find(t, l, Subject{Class: "local"}); len(f.Queries) != 0 {
		t.Errorf("of another server: %+v", f.Queries)
	}
}
