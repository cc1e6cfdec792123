package query

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// ofQuery is what a collector reports of one query.
type ofQuery struct {
	count   float64
	seconds float64 // of all phases
	reads   float64
	// durations are the numbers of statements by the power of two of their seconds.
	durations map[int]float64
}

// consistent reports what is wrong with the durations of a query, beside its other numbers.
func (q ofQuery) consistent() error {
	var count, least, most float64
	for power, n := range q.durations {
		count += n
		least += n * math.Ldexp(1, power-1)
		most += n * math.Ldexp(1, power)
	}
	if least = max(0, least-q.durations[-20]*math.Ldexp(1, -21)); count != q.count || q.seconds < least || q.seconds > most {
		return fmt.Errorf("%v statements in %v s; by duration %v, which are %v statements in %v to %v s", q.count, q.seconds, q.durations, count, least, most)
	}
	return nil
}

// durationsOf are a native histogram's buckets, by index.
func durationsOf(h *dto.Histogram) map[int]float64 {
	buckets, index, n, delta := map[int]float64{}, 0, int64(0), 0
	for _, span := range h.PositiveSpan {
		index += int(span.GetOffset())
		for range span.GetLength() {
			n += h.PositiveDelta[delta]
			buckets[index] = float64(n)
			index++
			delta++
		}
	}
	return buckets
}

// collectQueries returns what c reports of a server's queries, by identifier, and of its statements without one, by
// reason.
func collectQueries(t testing.TB, c collector.Collector, server string) (queries map[string]ofQuery, unknown map[string]float64) {
	t.Helper()
	queries, unknown = map[string]ofQuery{}, map[string]float64{}
	for _, f := range collectortest.Gather(t, c) {
		for _, m := range f.Metric {
			l := collectortest.Labels(m)
			if l["server"] != server {
				continue
			}
			q := queries[l["queryid"]]
			switch f.GetName() {
			case "plumbline_query_id_statements_total":
				q.count += m.Counter.GetValue()
			case "plumbline_query_id_phase_seconds_total":
				q.seconds += m.Counter.GetValue()
			case "plumbline_query_id_duration_seconds":
				q.durations = durationsOf(m.Histogram)
			case "plumbline_query_id_file_reads_total":
				q.reads += m.Counter.GetValue()
			case "plumbline_query_id_unknown_total":
				unknown[l["reason"]] = m.Counter.GetValue()
				continue
			default:
				continue
			}
			queries[l["queryid"]] = q
		}
	}
	return queries, unknown
}

// shape is a query of a form of its own.
func shape(i, operators int) string {
	var b strings.Builder
	b.WriteString("select 1")
	for bit := range operators {
		b.WriteString([]string{" + 1", " - 1"}[i>>bit&1])
	}
	return b.String()
}

// statsSettings are those of a server that identifies queries.
func statsSettings(name string) map[string]string {
	return map[string]string{"cluster_name": name, "autovacuum": "off", "shared_preload_libraries": "pg_stat_statements", "max_connections": "100"}
}

// startVersion starts a server of the distribution's version, or of another one.
func startVersion(t *testing.T, major int, settings map[string]string) *servertest.Postgres {
	t.Helper()
	if major == 0 {
		return servertest.StartPostgres(t, settings, nil)
	}
	return servertest.StartPostgresOf(t, major, settings, nil)
}

// modes are the ways in which clients send statements.
var modes = map[string]pgx.QueryExecMode{
	"simple": pgx.QueryExecModeSimpleProtocol, "extended": pgx.QueryExecModeExec, "prepared": pgx.QueryExecModeCacheStatement,
	"described": pgx.QueryExecModeDescribeExec,
}

// queriesSoFar returns what c reports of a server's queries that ran, those included whose series begin now, with 0.
func queriesSoFar(t *testing.T, c collector.Collector, server string) (queries map[string]ofQuery, unknown map[string]float64) {
	t.Helper()
	collectQueries(t, c, server)
	return collectQueries(t, c, server)
}

// sinceQueries returns what c reports of a server's queries since before.
func sinceQueries(t *testing.T, c collector.Collector, server string, before map[string]ofQuery) (queries map[string]ofQuery, sum ofQuery) {
	t.Helper()
	queries, _ = collectQueries(t, c, server)
	for id, n := range queries {
		n.count -= before[id].count
		n.seconds -= before[id].seconds
		n.reads -= before[id].reads
		for power, earlier := range before[id].durations {
			n.durations[power] -= earlier
		}
		queries[id] = n
		sum.count += n.count
		sum.seconds += n.seconds
		sum.reads += n.reads
	}
	return queries, sum
}

// wantStatements fails unless queries were counted as pg_stat_statements counts them, and returns how many these are.
func wantStatements(t *testing.T, pg *servertest.Postgres, queries map[string]ofQuery) (compared int) {
	t.Helper()
	rows, err := pg.Connect(t).Query(context.Background(), `select queryid::text, calls, (total_exec_time + total_plan_time) / 1e3, query
		from pg_stat_statements where toplevel and query not like '%pg_stat_statements%'`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var id, text string
		var calls, seconds float64
		if err := rows.Scan(&id, &calls, &seconds, &text); err != nil {
			t.Fatal(err)
		}
		if n := queries[id]; n.count != calls || n.seconds < seconds {
			t.Errorf("%s (%s): %v statements in %v s, pg_stat_statements has %v in %v s", text, id, n.count, n.seconds, calls, seconds)
		}
		compared++
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return compared
}

// By the server's own identifiers every statement is counted as pg_stat_statements counts it, on each version and in
// each protocol, and queries add up to the server.
func TestQueryIDs(t *testing.T) {
	const shapes, operators, each = 200, 8, 20
	for _, major := range append([]int{0}, otherVersions...) {
		t.Run(strconv.Itoa(major), func(t *testing.T) {
			name := "ids" + strconv.Itoa(major)
			pg := startVersion(t, major, statsSettings(name))
			q := startQueryWith(t, Options{Top: MaxTop})
			querytest.WaitForServer(t, q, name)
			exec(t, pg, "create extension pg_stat_statements")
			exec(t, pg, "create function f(n int) returns int language plpgsql as 'begin perform n + 1, n; perform count(*) from pg_class; return n; end'")
			exec(t, pg, "create table t (id int primary key, n int)")
			exec(t, pg, "select pg_stat_statements_reset()")
			before, _ := queriesSoFar(t, q, name)
			ofServer := querytest.Collect(t, q, name)
			ctx := context.Background()
			var client time.Duration
			sent := 0
			c := pg.Connect(t)
			do := func(text string, args ...any) {
				began := time.Now()
				if _, err := c.Exec(ctx, text, args...); err != nil {
					t.Fatal(err)
				}
				client += time.Since(began)
				sent++
			}
			for i, name := range []string{"simple", "extended", "prepared", "described"} {
				for range each {
					for s := range shapes {
						do(shape(s, operators), modes[name])
					}
					do("select f($1)", modes[name], 1)
					do("begin", modes[name])
					do("insert into t values ($1, 0)", modes[name], 1)
					do("update t set n = n + 1 where id = $1", modes[name], 1)
					do("delete from t", modes[name])
					do("commit", modes[name])
				}
				do(fmt.Sprintf("select pg_sleep(0.2), %d", i), modes[name])
			}
			got := querytest.Since(t, q, name, ofServer, uint64(sent))
			queries, sum := sinceQueries(t, q, name, before)
			_, unknown := collectQueries(t, q, name)
			querytest.WantCounts(t, got, got.Counts)
			if sum.count != float64(sent) || got.Total() != uint64(sent) || queries[otherQuery].count != 0 || unknown["unread"] != 0 {
				t.Errorf("%d statements, %d counted, %v by query, of these %v other; without identifiers %v", sent, got.Total(), sum.count, queries[otherQuery].count, unknown)
			}
			ofCommands := 0.0
			for _, phases := range got.Phases {
				for _, v := range phases {
					ofCommands += v
				}
			}
			if math.Abs(sum.seconds-ofCommands) > 1e-6 || math.Abs(sum.reads-got.Reads["hit"]-got.Reads["miss"]) > 0 || sum.seconds > client.Seconds() {
				t.Errorf("queries took %v s with %v reads, commands %v s with %v, the client waited %v", sum.seconds, sum.reads, ofCommands, got.Reads, client)
			}
			for id, n := range queries {
				if err := n.consistent(); err != nil {
					t.Errorf("query %s: %v", id, err)
				}
			}
			compared := wantStatements(t, pg, queries)
			if compared < shapes+6 {
				t.Errorf("%d queries in pg_stat_statements", compared)
			}
			t.Logf("%d statements of %d queries: %.3f s by query, %.3f s of the client", sent, compared, sum.seconds, client.Seconds())
		})
	}
}

// Behind a pooler, too, whose clients share the server's processes.
func TestQueryIDsBehindPooler(t *testing.T) {
	const statements = 3 * 1000
	settings := statsSettings("pooledids")
	settings["log_statement"] = "all"
	pg := servertest.StartPostgres(t, settings, nil)
	q := startQueryWith(t, Options{Top: 50})
	querytest.WaitForServer(t, q, "pooledids")
	exec(t, pg, "create extension pg_stat_statements; create table t (id int primary key, n int); insert into t select i, 0 from generate_series(0, 99) i")
	port := servertest.StartPooler(t, pg, "transaction")
	exec(t, pg, "select pg_stat_statements_reset()")
	before, _ := queriesSoFar(t, q, "pooledids")
	ofServer, set := querytest.Collect(t, q, "pooledids"), occurrences(t, pg.Log, "statement: SET ")
	pg.Bench(t, "update t set n = n + 1 where id = :client_id;\nselect n from t where id = :client_id;\nselect count(*) from t;\n",
		"-M", "extended", "-p", strconv.Itoa(port), "-c", "20", "-t", "50")
	querytest.Since(t, q, "pooledids", ofServer, statements+occurrences(t, pg.Log, "statement: SET ")-set)
	queries, _ := sinceQueries(t, q, "pooledids", before)
	if n := wantStatements(t, pg, queries); n < 3 {
		t.Errorf("%d queries in pg_stat_statements", n)
	}
}

// A function call, as libpq sends it for large objects, has no identifier: it is not counted for the query before it,
// whose identifier the server keeps.
func TestQueryIDsOfFunctionCalls(t *testing.T) {
	pg := servertest.StartPostgres(t, statsSettings("functions"), nil)
	q := startQueryWith(t, Options{Top: 50})
	querytest.WaitForServer(t, q, "functions")
	exec(t, pg, "create extension pg_stat_statements")
	exec(t, pg, "select pg_stat_statements_reset()")
	before, none := queriesSoFar(t, q, "functions")
	object := filepath.Join(t.TempDir(), "object")
	if err := os.WriteFile(object, make([]byte, 100_000), 0o600); err != nil {
		t.Fatal(err)
	}
	psql := osexec.Command(testkit.Tool(t, "psql"), "-X", "-h", "127.0.0.1", "-p", strconv.Itoa(pg.Port), "-U", "postgres", "-c", "select 42", "-c", `\lo_import `+object)
	if out, err := psql.CombinedOutput(); err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	querytest.AtRest(t, q, "functions")
	queries, _ := sinceQueries(t, q, "functions", before)
	_, after := collectQueries(t, q, "functions")
	if wantStatements(t, pg, queries); queries[otherQuery].count < 3 || queries[otherQuery].count != after["none"]-none["none"] {
		t.Errorf("without a query %v, without an identifier %v before, %v after", queries[otherQuery].count, none, after)
	}
}

// Whatever a server's clients send, no more of its queries are tracked than there are entries, those listed keep their
// exact counts, and all add up to the server.
func TestManyQueryIDs(t *testing.T) {
	const top, different, operators, connections = 10, 100000, 17, 4
	pg := servertest.StartPostgres(t, statsSettings("many"), nil)
	q := startQueryWith(t, Options{Top: top})
	querytest.WaitForServer(t, q, "many")
	before := querytest.AtRest(t, q, "many")
	ctx := context.Background()
	c := pg.Connect(t)
	const heavy = 50
	slow := func() {
		for range heavy {
			if _, err := c.Exec(ctx, "select pg_sleep(0.01)"); err != nil {
				t.Fatal(err)
			}
		}
	}
	slow()
	var group sync.WaitGroup
	for n := range connections {
		conn := pg.Connect(t)
		group.Go(func() {
			for i := n; i < different; i += connections {
				if _, err := conn.Exec(ctx, shape(i, operators), pgx.QueryExecModeSimpleProtocol); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	slow()
	querytest.Since(t, q, "many", before, different+2*heavy)
	total := querytest.AtRest(t, q, "many").Total()
	queries, _ := collectQueries(t, q, "many")
	sum, exact := ofQuery{}, 0
	for id, n := range queries {
		sum.count += n.count
		if id != otherQuery && n.count == 2*heavy && n.seconds > 2*heavy*0.01 {
			exact++
		}
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	a := q.fleet.accounts[accountKey{"many", "postgresql"}]
	// Within minutes, as on a busy machine, queries lose their series to others, and what they had is shown no more.
	ended := a.queries.inListed.All.Count
	for _, tracked := range a.queries.tracked {
		if tracked.series != nil {
			ended -= tracked.series.All.Count
		}
	}
	if len(queries) != top+1 || exact != 1 || sum.count+float64(ended) != float64(total) {
		t.Errorf("%d queries have series, %d as the heavy one, with %v of %d statements, and %d in series that ended", len(queries), exact, sum.count, total, ended)
	}
	if entries := int(queryEntries(top)); len(a.queries.tracked) > entries+top || q.fleet.occupied() > entries || a.queries.floor+a.queries.untracked == 0 {
		t.Errorf("%d queries are tracked in %d of %d entries, floor %v, untracked %v", len(a.queries.tracked), q.fleet.occupied(), entries, a.queries.floor, a.queries.untracked)
	}
}

// misread is a kernel side that is given a wrong description of one server, whenever that is described.
type misread struct {
	kernel
	number uint32
	wrong  func(*observation)
}

func (k misread) describe(number uint32, s observation) error {
	if number == k.number {
		k.wrong(&s)
	}
	return k.kernel.describe(number, s)
}

// Where identifiers are off, or the server's memory is not laid out as its version's is, statements have none, and that
// is counted.
func TestNoQueryIDs(t *testing.T) {
	const statements = 20
	q := startQueryWith(t, Options{Top: 10})
	for name, c := range map[string]struct {
		setting, reason string
		wrong           func(*observation)
	}{
		"off":    {"off", "none", func(*observation) {}},
		"layout": {"on", "unread", func(s *observation) { s.Version = "18" }},
		"moved":  {"on", "unread", func(s *observation) { s.status += 8 }},
	} {
		t.Run(name, func(t *testing.T) {
			pg := servertest.StartPostgres(t, map[string]string{"cluster_name": name, "compute_query_id": c.setting}, nil)
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				if querytest.WaitForServer(t, q, name)["version"] == "" {
					return errors.New("its version is not known")
				}
				return nil
			})
			q.mu.Lock()
			for _, srv := range q.fleet.tracked {
				if srv.label != name {
					continue
				}
				q.fleet.kernel = misread{q.kernel, srv.number, c.wrong}
				if err := q.fleet.kernel.describe(srv.number, srv.observation); err != nil {
					t.Error(err)
				}
			}
			q.mu.Unlock()
			_, before := collectQueries(t, q, name)
			conn := pg.Connect(t)
			querytest.During(t, q, name, statements, func() {
				for range statements {
					querytest.Run(t, conn, "select 1")
				}
			})
			queries, unknown := collectQueries(t, q, name)
			if n := unknown[c.reason] - before[c.reason]; n != statements || len(queries) > 1 {
				t.Errorf("%v statements without an identifier (%v), queries %v", n, unknown, queries)
			}
		})
	}
}

// A version whose layout is not known is refused, once, with its name.
func TestQueryIDsOfUnknownVersion(t *testing.T) {
	f, _ := testFleet(2)
	f.top = 10
	s := running(1, "a", 5432)
	s.status = 0x1234
	for _, version := range []string{"", "13", "13"} {
		s.Version = version
		f.update([]observation{s}, begin)
		want := uint64(0)
		if version != "" {
			want = 1
		}
		if got := f.attachErrors["a"]; got == nil && want > 0 || got != nil && got.count != want {
			t.Errorf("version %q: %+v, want %d", version, got, want)
		}
	}
}

// fleetOfQueries follows one server, with this number, of whose queries so many have series.
func fleetOfQueries(top int) (f *fleet, k *fakeKernel, number uint32) {
	f, k = testFleet(2)
	f.top = top
	s := running(1, "a", 5432)
	s.status, s.Version = 0x1234, "15"
	f.update([]observation{s}, begin)
	return f, k, f.tracked[s.ID].number
}

// counts is an entry's amounts.
func counts(n, ns uint64) bpf.QueryPerQuery {
	return bpf.QueryPerQuery{All: bpf.QueryAmounts{Count: n, SumNs: ns}}
}

// scrape sends the series of queries once.
func scrape(t *testing.T, q *queries) {
	t.Helper()
	ch := make(chan prometheus.Metric, 1000)
	if err := q.send(ch, accountKey{"a", "postgresql"}); err != nil {
		t.Error(err)
	}
}

// A query's series begin at 0, for a rate needs a first value: what it had before its first scrape is in the second.
// What it had when others took its series, and no scrape has seen, is in other.
func TestQueryIDsBeginAtZero(t *testing.T) {
	f, k, number := fleetOfQueries(1)
	c := &collected{f: f}
	gather := func(entries ...entry) string {
		k.queries[number], k.selects[number] = entries, 0
		for _, e := range entries {
			k.selects[number] += e.amounts.All.Count
		}
		queries, _ := collectQueries(t, c, "a")
		return fmt.Sprint(queries["11"].count, queries["12"].count, queries[otherQuery].count)
	}
	if got := gather(entry{0, 11, counts(5, 100)}); got != "0 0 0" {
		t.Errorf("at first %s", got)
	}
	if got := gather(entry{0, 11, counts(7, 100)}, entry{1, 12, counts(1, 900)}); got != "7 0 1" {
		t.Errorf("then %s", got)
	}
	a := f.accounts[accountKey{"a", "postgresql"}].queries
	a.unlist(a.tracked[11])
	a.listed = 0
	a.tracked[12].list(begin)
	if got := gather(entry{0, 11, counts(7, 100)}, entry{1, 12, counts(4, 900)}); got != "0 0 1" {
		t.Errorf("when another takes them %s", got)
	}
	a.unlist(a.tracked[12])
	if got := gather(entry{0, 11, counts(7, 100)}, entry{1, 12, counts(4, 900)}); got != "0 0 4" {
		t.Errorf("without a second scrape %s", got)
	}
}

// Series go to the queries with the most time, without going back: those that leave end, and what they had is no part
// of what others get.
func TestQueryIDsTakeTurns(t *testing.T) {
	const top = 2
	f, k, number := fleetOfQueries(top)
	a := f.accounts[accountKey{"a", "postgresql"}]
	listed := func() map[uint64]uint64 {
		l := map[uint64]uint64{}
		for id, q := range a.queries.tracked {
			if q.series != nil {
				l[id] = q.series.All.Count
			}
		}
		return l
	}
	at := begin
	drain := func(passed time.Duration, entries ...entry) {
		t.Helper()
		at = at.Add(passed)
		k.queries[number] = entries
		f.drainAll(at)
		var all totals
		for _, p := range entries {
			combine(&all.commands[0].All, &p.amounts.All, plus)
		}
		before := a.queries.other.All.Count
		a.queries.rest(&all)
		scrape(t, a.queries)
		if a.queries.other.All.Count < before {
			t.Errorf("other has fallen from %d to %d", before, a.queries.other.All.Count)
		}
	}
	drain(0, entry{0, 11, counts(1, 100)}, entry{1, 12, counts(1, 200)}, entry{2, 13, counts(5, 50)})
	if got := listed(); !maps.Equal(got, map[uint64]uint64{11: 1, 12: 1}) || a.queries.other.All.Count != 5 {
		t.Errorf("at first %v, other %d", got, a.queries.other.All.Count)
	}
	// It has more time than the least, but not twice as much; and not before its turn.
	drain(relistInterval, entry{0, 11, counts(1, 100)}, entry{1, 12, counts(2, 300)}, entry{2, 13, counts(6, 190)})
	drain(relistInterval/2, entry{0, 11, counts(1, 100)}, entry{1, 12, counts(2, 300)}, entry{2, 13, counts(7, 1000)})
	if got := listed(); !maps.Equal(got, map[uint64]uint64{11: 1, 12: 2}) {
		t.Errorf("before the turn %v", got)
	}
	drain(relistInterval, entry{0, 11, counts(1, 100)}, entry{1, 12, counts(2, 300)}, entry{2, 13, counts(8, 1100)})
	drain(1, entry{0, 11, counts(3, 120)}, entry{1, 12, counts(2, 300)}, entry{2, 13, counts(9, 1200)})
	if got := listed(); !maps.Equal(got, map[uint64]uint64{12: 2, 13: 1}) || a.queries.other.All.Count != 8+2 {
		t.Errorf("after the turn %v, other %d", got, a.queries.other.All.Count)
	}
}

// With few entries left those of the queries with the least time become free: at first no program counts there any
// more, then they are emptied. What such a query had bounds the error of one that comes anew.
func TestQueryIDsMakeRoom(t *testing.T) {
	const top = 8
	f, k, number := fleetOfQueries(top)
	a := f.accounts[accountKey{"a", "postgresql"}]
	all := int(queryEntries(top))
	var entries []entry
	for i := range all*3/4 + 1 {
		entries = append(entries, entry{uint32(i), uint64(100 + i), counts(1, uint64(1000-i))})
	}
	k.queries[number] = entries
	f.drainAll(begin)
	retired := all*3/4 + 1 - all/2
	if len(k.retired) != retired || k.retired[0] != uint32(all*3/4) || len(k.emptied) != 0 {
		t.Fatalf("retired %v, emptied %v", k.retired, k.emptied)
	}
	k.queries[number][all*3/4].id = retiredEntry
	k.queries[number][all*3/4].amounts = counts(2, 5000) // a program was still counting
	f.drainAll(begin.Add(retireTime / 2))
	if len(k.emptied) != 0 {
		t.Fatalf("emptied %v too soon", k.emptied)
	}
	f.drainAll(begin.Add(retireTime))
	if len(k.emptied) != retired || a.queries.floor < 5000 || len(a.queries.tracked) != all/2 {
		t.Errorf("emptied %v, floor %v, %d tracked", k.emptied, a.queries.floor, len(a.queries.tracked))
	}
	k.queries[number] = append(entries[:all/2:all/2], entry{60, 999, counts(1, 10)})
	f.drainAll(begin.Add(2 * retireTime))
	if got := a.queries.tracked[999]; got == nil || got.doubt != a.queries.floor || got.series != nil {
		t.Errorf("a new one: %+v", got)
	}
}

// No entry is kept for good by a query that is not tracked, and no query keeps two.
func TestQueryIDsLeakNoEntries(t *testing.T) {
	const top = 2
	all := int(queryEntries(top))
	full := func() (entries []entry) {
		for i := range all*3/4 + 1 {
			entries = append(entries, entry{uint32(i), uint64(100 + i), counts(1, uint64(1000-i))})
		}
		return entries
	}
	least := uint64(100 + all*3/4)
	t.Run("a retired query that runs once more", func(t *testing.T) {
		f, k, number := fleetOfQueries(top)
		k.queries[number] = full()
		f.drainAll(begin)
		again := entry{uint32(all - 1), least, counts(1, 1)}
		k.queries[number] = append(k.queries[number], again)
		f.drainAll(begin.Add(retireTime)) // its entry of before is emptied
		if q := f.accounts[accountKey{"a", "postgresql"}].queries; q.tracked[least] == nil {
			t.Error("a query with an entry is not tracked")
		}
		k.queries[number], k.retired = append(full()[:all*3/4], again), nil
		f.drainAll(begin.Add(retireTime))
		if !slices.Contains(k.retired, again.index) {
			t.Errorf("retired %v, without its second entry", k.retired)
		}
	})
	t.Run("a query that nobody tracks", func(t *testing.T) {
		f, k, number := fleetOfQueries(top)
		k.queries[number] = full()
		k.queries[number][5].amounts = counts(0, 0) // taken, and not counted yet
		f.drainAll(begin)
		if !slices.Contains(k.retired, 5) {
			t.Errorf("retired %v", k.retired)
		}
	})
	t.Run("a listed query in an earlier entry", func(t *testing.T) {
		f, k, number := fleetOfQueries(top)
		k.queries[number] = []entry{{3, 11, counts(1, 100)}}
		f.drainAll(begin)
		k.queries[number] = []entry{{1, 11, counts(1, 50)}, {3, 11, counts(1, 100)}}
		f.drainAll(begin)
		if q := f.accounts[accountKey{"a", "postgresql"}].queries; !slices.Equal(k.retired, []uint32{3}) || q.tracked[11].series.All.Count != 2 {
			t.Errorf("retired %v, %+v", k.retired, q.tracked[11].series)
		}
	})
	t.Run("two servers of one label", func(t *testing.T) {
		f, k, number := fleetOfQueries(top)
		old := f.tracked[running(1, "a").ID]
		k.queries[number], k.marked[number] = []entry{{0, 11, counts(1, 100)}, {1, 12, counts(1, 90)}, {2, 13, counts(1, 80)}}, 1
		k.selects[number] = 3
		f.drainAll(begin)
		next := running(2, "a", 5432)
		next.status, next.Version = old.status, old.Version
		f.update([]observation{next}, begin)
		k.queries[number] = []entry{{0, 13, counts(1, 80)}}
		k.queries[f.tracked[next.ID].number] = []entry{{2, 13, counts(1, 80)}}
		q := f.accounts[accountKey{"a", "postgresql"}].queries
		f.drainAll(begin)
		f.release(f.leaving[0], begin)
		f.leaving = nil
		f.drainAll(begin)
		if q.tracked[13] == nil {
			t.Error("the end of a server forgot what the next one has an entry for")
		}
		k.queries[f.tracked[next.ID].number] = nil
		f.tracked[next.ID].seen = nil
		q.tracked[11].series = nil // another one took it
		f.drainAll(begin)
		if q.tracked[11] != nil {
			t.Error("a query without an entry and series is tracked")
		}
	})
}

// Of a server whose identifiers are not read all statements are in queryid="other".
func TestQueryIDsUnread(t *testing.T) {
	f, k := testFleet(2)
	f.top = 10
	mysql := running(2, "b", 3306)
	mysql.DBSystem = server.MySQL
	f.update([]observation{running(1, "a", 5432), mysql, running(3, "of the rest", 5433)}, begin)
	for number := range uint32(3) {
		k.selects[number] = 7
	}
	for name, want := range map[string]map[string]ofQuery{"a": {otherQuery: {count: 7}}, "b": {}, collector.OtherServer: {}} {
		same := func(a, b ofQuery) bool { return a.count == b.count && a.seconds == b.seconds && a.reads == b.reads }
		if got, _ := collectQueries(t, &collected{f: f}, name); !maps.EqualFunc(got, want, same) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
}
