package why

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// withQueries is a lab whose server r3 has two queries, others, and statements without an identifier; r1 has none.
func withQueries() *whytest.Lab {
	l := whytest.Healthy()
	l.More = func(r *whytest.Recording) {
		for id, q := range map[string]struct{ perSecond, cpu, sync, misses float64 }{ // ms
			"-81": {10, 2, 40, 0}, "82": {100, 1, 0, 3}, "other": {1, 1, 1, 0},
		} {
			of := `server="r3",node="n",db_system="postgresql",queryid="` + id + `"`
			r.CounterThen(`plumbline_query_id_statements_total{`+of+`}`, 10, q.perSecond)
			r.CounterThen(`plumbline_query_id_phase_seconds_total{`+of+`,phase="cpu"}`, 0.02, q.perSecond*q.cpu/1000)
			r.Counter(`plumbline_query_id_phase_seconds_total{`+of+`,phase="sync"}`, q.perSecond*q.sync/1000)
			r.Counter(`plumbline_query_id_file_reads_total{`+of+`,cache="miss"}`, q.perSecond*q.misses)
		}
		r.Counter(`plumbline_query_id_unknown_total{server="r3",node="n",db_system="postgresql",reason="none"}`, 1)
		r.Counter(`plumbline_query_id_unknown_total{server="r3",node="n",db_system="postgresql",reason="unread"}`, 0)
		r.Gauge(`query:text:info{server="r3",queryid="-81",query="update t\nset n = n + $1 \x1b[31m where id = $2"}`, 1)
	}
	return l
}

func findTop(t *testing.T, l *whytest.Lab, s Subject, order string) *Top {
	t.Helper()
	top, err := FindTop(t.Context(), l.Record(), []Subject{s}, whytest.End, 20*time.Second, order)
	if err != nil {
		t.Fatal(err)
	}
	return top
}

// Queries have their counts, times by phase, reads and texts; they are ordered by what is requested.
func TestTop(t *testing.T) {
	for order, want := range map[string]string{"time": "-81 82 other", "mean": "-81 other 82", "count": "82 -81 other", "misses": "82 -81 other", "cpu": "82 -81 other"} {
		top := findTop(t, withQueries(), Subject{Server: "r3"}, order)
		var ids []string
		share := 0.0
		for _, q := range top.Queries {
			ids, share = append(ids, q.ID), share+q.Share
		}
		if got := strings.Join(ids, " "); got != want || math.Abs(share-1) > 1e-9 {
			t.Errorf("by %s: %s with %v of the time, want %s", order, got, share, want)
		}
		if order != "time" {
			continue
		}
		q := top.Queries[0]
		if math.Abs(q.Count-200) > 1 || math.Abs(q.Mean()-0.042) > 1e-6 || math.Abs(q.in("sync")/q.Count-0.04) > 1e-6 || q.Misses != 0 || len(q.Phases) != 2 || !q.Grown() || top.Queries[1].Grown() {
			t.Errorf("%+v", q)
		}
		var b strings.Builder
		PlainPrinter(&b).Top(top, 2)
		flat := strings.Join(strings.Fields(b.String()), " ")
		for _, want := range []string{"; 2 of 3.", "-81 80 200 42 2.0 0 csss", "update t set n = n + $1 ?[31m where id = $2", "82 19 2000 1.00 2.0 6000 ccccc", "c cpu s sync",
			"- Server r3: 20 statements in other have no identifier; the server gives them none: compute_query_id is off"} {
			if !strings.Contains(flat, want) {
				t.Errorf("%q is not in:\n%s", want, b.String())
			}
		}
		if strings.Contains(flat, "other 0") {
			t.Errorf("more than two queries:\n%s", b.String())
		}
	}
}

// MySQL's queries are its digests, whose time is the CPU's, that of locks, and the rest. A server of the same name on
// another node has its own.
func TestTopOfMySQL(t *testing.T) {
	r := whytest.Healthy().Record()
	r.Gauge(`plumbline_server_info{server="my",node="n",db_system="mysql"}`, 1)
	for id, q := range map[string]struct{ perSecond, seconds, cpu, locks float64 }{"aa": {10, 0.4, 0.1, 0.2}, "bb": {5, 0.1, 0, 0}, "cc": {1, 0.01, 0.02, 0.02}} {
		for _, node := range []string{map[string]string{"bb": `,node="n"`}[id], `,node="another"`} {
			of := `{server="my",schema="s",digest="` + id + `",digest_text="SELECT ?"` + node + `}`
			r.Counter(`mysql_perf_schema_events_statements_total`+of, q.perSecond)
			r.Counter(`mysql_perf_schema_events_statements_seconds_total`+of, q.seconds)
			r.Counter(`mysql_perf_schema_events_statements_cpu_time_seconds_total`+of, q.cpu)
			r.Counter(`mysql_perf_schema_events_statements_lock_time_seconds_total`+of, q.locks)
		}
	}
	top, err := FindTop(t.Context(), r, []Subject{{Server: "my"}}, whytest.End, 20*time.Second, "time")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	PlainPrinter(&b).Top(top, 20)
	flat := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{"aa 78 200 40 - - ccccc", "SELECT ?", "bb 20 100 20 - - ", "cc 2 20 10.0 - - c SELECT", "without the agent's phases"} {
		if !strings.Contains(flat, want) {
			t.Errorf("%q is not in:\n%s", want, b.String())
		}
	}
	for _, q := range top.Queries {
		if spent := map[string]float64{"aa": 8, "bb": 2, "cc": 0.2}[q.ID]; math.Abs(q.Seconds()-spent) > 0.01 {
			t.Errorf("%s: %v s, want %v", q.ID, q.Seconds(), spent)
		}
	}
	// Their locks are no other waits, as for another session's commit.
	for reason, want := range map[Reason]int{Lock: 1, Largest: 0} {
		f := Finding{Target: top.Servers[0], Verdict: Verdict{Culprit: Culprit{Layer: layers.Wait, Reason: reason}}}
		newQuerier(t.Context(), r, whytest.End, 20*time.Second).about(f.Target).queries(&f)
		if len(f.Queries) != want {
			t.Errorf("%s: %+v, want %d", reason, f.Queries, want)
		}
	}
}

// Of a server without queries, or of another database, the reason is given; an unknown one is an error.
func TestTopOfNone(t *testing.T) {
	for server, c := range map[string]struct{ engine, want string }{
		"r1": {"postgresql", "Server r1: no query has time in the last 20 s; the agent's --query.top=0 exports none."},
		"r3": {"redis", "Server r3: queries of redis are not distinguished."},
		"r4": {"mariadb", "Server r4: no digest has time in the last 20 s; mysqld_exporter exports them with --collect.perf_schema.eventsstatements, on a target with the label server."},
	} {
		top := &Top{Window: 20 * time.Second, Servers: []Target{{Server: server, Engine: c.engine}}}
		if notes := top.Notes(); len(notes) != 1 || notes[0] != c.want {
			t.Errorf("%q, want %q", notes, c.want)
		}
		var b strings.Builder
		PlainPrinter(&b).Top(top, 20)
		if strings.Contains(b.String(), "queryid") {
			t.Errorf("a table without lines:\n%s", b.String())
		}
	}
	if top := findTop(t, withQueries(), Subject{Server: "r1"}, "time"); len(top.Queries) != 0 || len(top.Notes()) != 1 {
		t.Errorf("%+v", top)
	}
	_, err := FindTop(t.Context(), withQueries().Record(), []Subject{{Server: "x"}}, whytest.End, time.Minute, "time")
	if !errors.Is(err, ErrUnknown) {
		t.Errorf("of an unknown server: %v", err)
	}
}
