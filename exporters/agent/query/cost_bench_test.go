package query

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	osexec "os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/bpf/dispatcher"
	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/loadgen/stats"
	"github.com/plumbline/plumbline/tests/paired"
	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	costFor     = flag.Duration("cost.for", 4*time.Minute, "How long BenchmarkStatementCost takes slots of each load at most.")
	costClients = flag.Int("cost.clients", 2, "Its load's connections.")
)

// tpsLine is how pgbench prints its rate.
var tpsLine = regexp.MustCompile(`(?m)^tps = ([0-9.]+)`)

// floorWanted is the noise below which a ratio is reported: as a share of the CPU time per transaction.
const floorWanted = 0.005

// costModes are the modes that are compared with the first, in which nothing is attached. The second is the same:
// what differs between these two is the noise.
var costModes = []string{"nothing attached", "the same again", "empty programs", "look-ups only", "not by query", "everything"}

// What following its statements costs a PostgreSQL server and its client: the CPU time per transaction at a fixed
// rate, half of what they can do, with one set of programs after the other attached in this one process.
func BenchmarkStatementCost(b *testing.B) {
	testkit.NeedBPF(b)
	pg := servertest.StartPostgres(b, map[string]string{"cluster_name": "cost", "shared_buffers": "300MB", "autovacuum": "off", "max_wal_size": "4GB", "compute_query_id": "on"}, nil)
	pgbench(b, pg, "-i", "-q", "-s", "10").run(b)
	sets := startSets(b)
	querytest.WaitForServer(b, sets.collector, "cost")
	file := collectortest.Results(b, "statementcost",
		"go test -run '^$' -bench StatementCost -benchtime 1x -timeout 1h -v ./exporters/agent/query")
	for b.Loop() {
		for _, load := range []struct {
			name string
			args []string
		}{{"select", []string{"-S"}}, {"tpcb", nil}} {
			c := &cost{sets: sets, pg: pg, load: load.name, file: file}
			c.start(b, append([]string{"-n", "-M", "prepared", "-c", strconv.Itoa(*costClients), "-j", "2"}, load.args...))
			c.compare(b)
			for _, mode := range []string{"not by query", "everything"} {
				c.programs(b, mode)
			}
			c.stop(b)
		}
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
}

// sets are the programs, four times: as they are, without distinguishing queries, reduced to their look-ups, and empty.
type sets struct {
	collector *query
	groups    map[string]map[string]*platform.ProgramGroup // by mode
	links     []io.Closer
}

// startSets loads them. They share their state.
func startSets(b *testing.B) *sets {
	s := &sets{collector: startQueryWith(b, Options{Top: DefaultTop}), groups: map[string]map[string]*platform.ProgramGroup{}}
	p := s.collector.programs
	attached := attachedPrograms(p.kernel, nil)
	s.groups["everything"] = p.groups
	s.links = p.links[:len(attached)]
	shared := map[string]*ebpf.Map{}
	all := reflect.ValueOf(p.objects)
	for i := range all.NumField() {
		if name := all.Type().Field(i).Tag.Get("ebpf"); name != "query_ids" && name != "queries" {
			shared[name] = all.Field(i).Interface().(*ebpf.Map)
		}
	}
	for mode, extent := range map[string]bpf.QueryExtent{
		"not by query": bpf.QueryExtentEXTENT_ALL, "look-ups only": bpf.QueryExtentEXTENT_LOOKUPS, "empty programs": bpf.QueryExtentEXTENT_NOTHING,
	} {
		spec, err := querySpec(p.kernel, s.collector.scanner.Programs, defaultServers, 0, p.multi, nil)
		if err != nil {
			b.Fatal(err)
		}
		maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool {
			return slices.Contains(iterators, name) || slices.Contains(tlsPrograms, name)
		})
		if err := spec.Variables["bench_extent"].Set(uint32(extent)); err != nil {
			b.Fatal(err)
		}
		collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(collection.Close)
		s.groups[mode] = p.dispatch.ProgramGroups(dispatcher.DispatcherFollowerFOLLOWS_STATEMENTS, spec, collection)
	}
	b.Cleanup(func() {
		if err := s.detach(); err != nil {
			b.Error(err)
		}
	})
	return s
}

func (s *sets) detach() error {
	var problems []error
	for i, l := range s.links {
		problems = append(problems, l.Close())
		s.links[i] = io.NopCloser(nil)
	}
	return errors.Join(problems...)
}

// enter leaves attached what a mode has.
func (s *sets) enter(mode string) error {
	if err := s.detach(); err != nil {
		return err
	}
	if s.groups[mode] == nil {
		return nil
	}
	for i, name := range slices.Sorted(slices.Values(attachedPrograms(s.collector.programs.kernel, nil))) {
		l, err := s.groups[mode][name].Attach()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.links[i] = l
	}
	return nil
}

// cost is the comparison under one load.
type cost struct {
	sets   *sets
	pg     *servertest.Postgres
	load   string
	file   *rows.File
	client *osexec.Cmd
	log    *paired.Transactions
	meters []paired.Meter
	names  []string // the meters'
	blocks []paired.Block
}

// command is a run of pgbench.
type command struct{ *osexec.Cmd }

func pgbench(b *testing.B, pg *servertest.Postgres, args ...string) command {
	return command{osexec.Command(testkit.Tool(b, "pgbench"), append(args, pg.URL)...)}
}

func (c command) run(b *testing.B) string {
	out, err := c.CombinedOutput()
	if err != nil {
		b.Fatalf("%s: %v\n%s", c, err, out)
	}
	return string(out)
}

// start lets the load run at half of what is possible, with everything attached: so that its connections are followed.
func (c *cost) start(b *testing.B, args []string) {
	if err := c.sets.enter("everything"); err != nil {
		b.Fatal(err)
	}
	var peak float64
	for _, line := range tpsLine.FindAllStringSubmatch(pgbench(b, c.pg, slices.Concat(args, []string{"-T", "5"})...).run(b), -1) {
		peak, _ = strconv.ParseFloat(line[1], 64)
	}
	if peak == 0 {
		b.Fatal("pgbench reports no rate")
	}
	rate := int(peak / 2)
	prefix := filepath.Join(b.TempDir(), "log")
	c.client = pgbench(b, c.pg, slices.Concat(args, []string{"-R", strconv.Itoa(rate), "-T", "86400", "--log", "--log-prefix=" + prefix})...).Cmd
	if err := c.client.Start(); err != nil {
		b.Fatal(err)
	}
	c.log = paired.TransactionsOf(prefix)
	conn := c.pg.Connect(b)
	defer conn.Close(context.Background())
	pids := []int{c.client.Process.Pid}
	testkit.Eventually(b, testkit.DefaultTimeout, func() error {
		var backends []int
		if err := conn.QueryRow(context.Background(), "select coalesce(array_agg(pid), '{}') from pg_stat_activity where application_name = 'pgbench'").Scan(&backends); err != nil {
			return err
		}
		if len(backends) != *costClients {
			return fmt.Errorf("%d connections, want %d", len(backends), *costClients)
		}
		pids = append(pids[:1], backends...)
		return nil
	})
	c.meters, c.names = []paired.Meter{paired.CPUOf(pids...)}, []string{"processes"}
	if busy, ok := paired.Busy("/sys"); ok {
		c.meters, c.names = append(c.meters, busy), append(c.names, "machine")
	}
	b.Logf("%s: %d transactions/s of %.0f possible", c.load, rate, peak)
}

func (c *cost) stop(b *testing.B) {
	// It has no way to end before its time, and what it has not written yet is not needed.
	if err := c.client.Process.Kill(); err != nil {
		b.Fatal(err)
	}
	c.client.Wait()
}

// compare takes blocks until the noise is small enough, or for as long as is allowed.
func (c *cost) compare(b *testing.B) {
	var modes []paired.Mode
	for _, name := range costModes {
		modes = append(modes, paired.Mode{Name: name, Enter: func() error { return c.sets.enter(name) }})
	}
	const perCheck = 20 // blocks
	for began := time.Now(); time.Since(began) < *costFor; {
		for range perCheck {
			block, err := paired.Run(context.Background(), modes, c.meters, paired.Times{Settle: 50 * time.Millisecond, Measure: 400 * time.Millisecond})
			if err != nil {
				b.Fatal(err)
			}
			c.blocks = append(c.blocks, block)
		}
		until, err := c.log.Read()
		if err != nil {
			b.Fatal(err)
		}
		last := len(c.blocks)
		for last > 0 && slices.ContainsFunc(c.blocks[last-1], func(s paired.Slot) bool { return s.To.After(until) }) {
			last--
		}
		floor := floorOf(c.perTransaction(c.blocks[:last], 0))
		b.Logf("%s: %d blocks, floor %.2f %%", c.load, last, 100*floor)
		if last >= 3*perCheck && floor < floorWanted {
			break
		}
	}
	until, err := c.log.Read()
	if err != nil {
		b.Fatal(err)
	}
	c.blocks = slices.DeleteFunc(c.blocks, func(block paired.Block) bool {
		return slices.ContainsFunc(block, func(s paired.Slot) bool { return s.To.After(until) })
	})
	for m := range c.meters {
		c.record(b, m)
	}
}

// perTransaction is what each mode used for a transaction, block by block; blocks in which a slot saw none are left
// out.
func (c *cost) perTransaction(blocks []paired.Block, meter int) (used [][]float64) {
	used = make([][]float64, len(costModes))
	for _, block := range blocks {
		one := make([]float64, len(block))
		for i, slot := range block {
			one[i] = slot.Used[meter] / float64(c.log.Count(slot))
		}
		if slices.ContainsFunc(one, func(v float64) bool { return math.IsInf(v, 0) || math.IsNaN(v) }) {
			continue
		}
		for i := range one {
			used[i] = append(used[i], one[i])
		}
	}
	return used
}

// floorOf is how far from 1 the ratio of the same to itself may be.
func floorOf(used [][]float64) float64 {
	same, ok := stats.Paired(used[0], used[1], collectortest.OneSided)
	if !ok {
		return math.Inf(1)
	}
	return max(same.High, 1/same.Low) - 1
}

// record prints and records what a meter saw.
func (c *cost) record(b *testing.B, meter int) {
	used := c.perTransaction(c.blocks, meter)
	floor := floorOf(used)
	for i, mode := range costModes {
		cells := []string{"CPU per transaction", fmt.Sprintf("%.2f us", 1e6*rows.Median(used[i])), "nothing's to it", "1"}
		if i > 0 {
			d, ok := stats.Paired(used[i], used[0], collectortest.OneSided)
			switch {
			case !ok:
				b.Fatalf("only %d blocks", len(used[i]))
			case i > 1 && floor >= floorWanted:
				cells[3] = fmt.Sprintf("not known: the floor is %.2f %%", 100*floor)
			default:
				cells[3] = fmt.Sprintf("%.4f, at least %.4f", d.Ratio, d.Low)
			}
			add := make([]float64, len(used[i]))
			for block := range add {
				add[block] = 1e6 * (used[i][block] - used[0][block])
			}
			cells = append(cells, "added, us (middle half)", rows.Spread(add, "%.2f"))
		}
		cells = append(cells, "floor", fmt.Sprintf("%.2f %%", 100*floor), "blocks", fmt.Sprint(len(used[i])))
		what := fmt.Sprintf("%s, %s of the %s", c.load, mode, c.names[meter])
		c.file.Add("Overhead: what following a statement costs", what, cells...)
		b.Log(what, cells)
	}
}

// runs is how a program ran for a while.
type runs struct{ count, ns float64 }

// each is what one run took.
func (r runs) each() float64 {
	if r.count == 0 {
		return 0
	}
	return r.ns / r.count
}

// programs reports what each program takes for a run by the kernel's own clock, beside the same one empty, which shows
// what of that is the clock itself; and what the collector's own metric reports of the rest.
func (c *cost) programs(b *testing.B, mode string) {
	clock, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Fatal(err)
	}
	defer clock.Close()
	empty, _, _ := c.watch(b, "empty programs")
	all, transactions, metric := c.watch(b, mode)
	var own float64
	for _, name := range slices.Sorted(maps.Keys(all)) {
		r := all[name]
		if r.count == 0 {
			continue
		}
		part := (r.ns - r.count*empty[name].each()) / transactions
		own += part
		cells := []string{"ns per run", fmt.Sprintf("%.0f", r.each()), "empty", fmt.Sprintf("%.0f", empty[name].each()),
			"runs per transaction", fmt.Sprintf("%.2f", r.count/transactions),
			"us per transaction", fmt.Sprintf("%.2f", r.ns/transactions/1e3), "without the empty one's", fmt.Sprintf("%.2f", part/1e3)}
		what := fmt.Sprintf("%s, %s: %s", c.load, mode, name)
		c.file.Add("Overhead: each program by the kernel's clock, under that load", what, cells...)
		b.Log(what, cells)
	}
	cells := []string{"by the kernel's clock, us per transaction", fmt.Sprintf("%.2f", own/1e3),
		"by plumbline_query_overhead_seconds_total", fmt.Sprintf("%.2f", metric/transactions/1e3), "ratio", fmt.Sprintf("%.2f", metric/own)}
	c.file.Add("Overhead: the programs' own part, and what the agent reports of it", c.load+", "+mode, cells...)
	b.Log(cells)
}

// watch counts a mode's programs' runs for some seconds, transactions meanwhile, and what the collector reports of their
// cost, in ns.
func (c *cost) watch(b *testing.B, mode string) (programs map[string]runs, transactions, metric float64) {
	if err := c.sets.enter(mode); err != nil {
		b.Fatal(err)
	}
	read := func() (map[string]ebpf.ProgramStats, float64) {
		all := map[string]ebpf.ProgramStats{}
		running := maps.Clone(c.sets.collector.programs.dispatch.Programs())
		for _, name := range attachedPrograms(c.sets.collector.programs.kernel, nil) {
			if group := c.sets.groups[mode][name]; !group.PassedOn() {
				running[name] = group
			}
		}
		for name, group := range running {
			s, err := group.Stats()
			if err != nil {
				b.Fatal(err)
			}
			all[name] = s
		}
		return all, c.sets.reported(b)
	}
	from := time.Now()
	before, reported := read()
	time.Sleep(3 * time.Second) // over which is measured
	after, metric := read()
	to := time.Now()
	testkit.Eventually(b, testkit.DefaultTimeout, func() error {
		until, err := c.log.Read()
		if err == nil && until.Before(to) {
			err = errors.New("pgbench's log does not go on")
		}
		transactions = float64(c.log.Count(paired.Slot{From: from, To: to}))
		return err
	})
	if transactions == 0 {
		b.Fatal("pgbench did nothing")
	}
	programs = map[string]runs{}
	for name, s := range after {
		programs[name] = runs{float64(s.RunCount - before[name].RunCount), float64(s.Runtime - before[name].Runtime)}
	}
	return programs, transactions, metric - reported
}

// reported is what the collector reports that following the server cost, in ns.
func (s *sets) reported(b *testing.B) float64 {
	for _, srv := range s.collector.fleet.tracked {
		if srv.label == "cost" {
			t, err := s.collector.kernel.read(srv.number)
			if err != nil {
				b.Fatal(err)
			}
			return float64(t.own)
		}
	}
	b.Fatal("the server is not followed")
	return 0
}
