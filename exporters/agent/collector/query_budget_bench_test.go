package collector

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/loadgen/stats"
	"github.com/plumbline/plumbline/tests/paired"
	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/testkit"
)

// thrift is what is read of one server while it is followed with and without a sample.
type thrift struct {
	q      *query
	number uint32
	t      totals
}

// What is saved where the time of one statement in 64 is split, under floods as large as this machine can make, and how
// far the phases are then from those of all statements.
func BenchmarkBudget(b *testing.B) {
	// All of a CPU: the collector itself never begins to sample.
	q := startQueryWith(b, QueryOptions{OverheadBudget: 1})
	pg := servertest.StartPostgres(b, map[string]string{"cluster_name": "thrifty", "shared_buffers": "300MB", "autovacuum": "off", "max_wal_size": "4GB"}, nil)
	pgbench(b, pg, "-i", "-q", "-s", "10").run(b)
	waitForServer(b, q, "thrifty")
	file := results(b, "budget",
		"go test -run '^$' -bench Budget -benchtime 1x -v ./exporters/agent/collector")
	th := &thrift{q: q}
	for _, fo := range q.fleet.followers {
		if fo.label == "thrifty" {
			th.number = fo.number
		}
	}
	for b.Loop() {
		for _, load := range []struct {
			name string
			args []string
		}{{"select", []string{"-S"}}, {"tpcb", nil}} {
			args := append([]string{"-n", "-M", "prepared", "-c", "4", "-j", "2", "-T", "86400"}, load.args...)
			client := pgbench(b, pg, args...).Cmd
			if err := th.read(); err != nil {
				b.Fatal(err)
			}
			before := th.statements()
			if err := client.Start(); err != nil {
				b.Fatal(err)
			}
			end := sync.OnceFunc(func() {
				client.Process.Kill()
				client.Wait()
			})
			b.Cleanup(end)
			// Its connections take longer than a slot where the machine is slow.
			testkit.Eventually(b, testkit.Patience, func() error {
				err := th.read()
				if err == nil && th.statements() == before {
					err = errors.New("pgbench has sent nothing yet")
				}
				return err
			})
			th.compare(b, file, load.name)
			end()
		}
	}
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
}

// What the meters read, in this order: the cost of following, statements, CPU time of the server, then time that is not
// split, and by phase that which is and the sample's.
const (
	meterOwn = iota
	meterStatements
	meterServer
	meterUnsplit
	meterPhases
	meterSample = meterPhases + int(bpf.QueryPhasePHASES)
	allMeters   = meterSample + int(bpf.QueryPhasePHASES)
)

func (th *thrift) meters() []paired.Meter {
	meters := make([]paired.Meter, allMeters)
	// The first one reads for all.
	meters[meterOwn] = func() (float64, error) {
		err := th.read()
		return float64(th.t.own), err
	}
	meters[meterStatements] = func() (float64, error) { return th.statements(), nil }
	meters[meterServer] = func() (float64, error) {
		_, cpu, err := th.q.kernel.budget(th.number)
		return float64(cpu), err
	}
	meters[meterUnsplit] = func() (float64, error) {
		return th.sum(func(t *total) uint64 { return t.PhaseNs[bpf.QueryPhaseUNSPLIT] }), nil
	}
	for phase := range bpf.QueryPhasePHASES {
		meters[meterPhases+int(phase)] = func() (float64, error) {
			return th.sum(func(t *total) uint64 { return t.PhaseNs[phase] }), nil
		}
		meters[meterSample+int(phase)] = func() (float64, error) {
			return th.sum(func(t *total) uint64 { return t.SampleNs[phase] }), nil
		}
	}
	return meters
}

// read takes what was counted so far.
func (th *thrift) read() (err error) {
	th.t, err = th.q.kernel.read(th.number)
	return err
}

// sum adds up what of each command, as of the latest read.
func (th *thrift) sum(of func(*total) uint64) (n float64) {
	for i := range th.t.commands {
		n += float64(of(&th.t.commands[i]))
	}
	return n
}

// statements is how many were counted, as of the latest read.
func (th *thrift) statements() float64 {
	return th.sum(func(t *total) uint64 { return t.Count })
}

// compare takes blocks of both modes, and reports.
func (th *thrift) compare(b *testing.B, file *rows.File, load string) {
	const blocks = 40
	modes := []paired.Mode{
		{Name: "all split", Enter: func() error { return th.q.kernel.sample(th.number, 0) }},
		{Name: "one in 64 split", Enter: func() error { return th.q.kernel.sample(th.number, maxPower) }},
	}
	cost := make([][]float64, len(modes))
	share := make([][]float64, len(modes))
	sums := make([][allMeters]float64, len(modes))
	for range blocks {
		block, err := paired.Run(context.Background(), modes, th.meters(), paired.Times{Settle: 100 * time.Millisecond, Measure: 400 * time.Millisecond})
		if err != nil {
			b.Fatal(err)
		}
		for m, slot := range block {
			if slot.Used[meterStatements] == 0 {
				b.Fatalf("%s: no statements in a slot", load)
			}
			cost[m] = append(cost[m], slot.Used[meterOwn]/slot.Used[meterStatements])
			share[m] = append(share[m], slot.Used[meterOwn]/slot.Used[meterServer])
			for i, v := range slot.Used {
				sums[m][i] += v
			}
		}
	}
	d, ok := stats.Paired(cost[1], cost[0], oneSided)
	if !ok {
		b.Fatalf("%s: only %d blocks", load, len(cost[0]))
	}
	for m, mode := range modes {
		seconds := float64(blocks) * 0.4
		cells := []string{
			"statements/s", fmt.Sprintf("%.0f", sums[m][meterStatements]/seconds),
			"cost of one, ns", fmt.Sprintf("%.0f", rows.Median(cost[m])),
			"of the server's CPU", fmt.Sprintf("%.2f %%", 100*rows.Median(share[m])),
			"to all split", "1", "error of the phases, at most", "0"}
		if m > 0 {
			cells[7] = fmt.Sprintf("%.3f (%.3f to %.3f)", d.Ratio, d.Low, d.High)
			cells[9] = fmt.Sprintf("%.2f %% of the time", 100*th.wrong(&sums[0], &sums[m]))
		}
		file.Add("Overhead budget: what a sample of the phases saves", load+", "+mode.Name, cells...)
		b.Log(load, mode.Name, cells)
	}
}

// wrong is by how much the share of any phase differs between all statements and the sampled ones.
func (th *thrift) wrong(all, sampled *[allMeters]float64) (most float64) {
	var sample, allTime, time float64
	for phase := range int(bpf.QueryPhasePHASES) {
		sample += sampled[meterSample+phase]
		allTime += all[meterPhases+phase]
		time += sampled[meterPhases+phase]
	}
	time += sampled[meterUnsplit]
	for phase := range int(bpf.QueryPhasePHASES) {
		estimated := sampled[meterPhases+phase] + sampled[meterUnsplit]*sampled[meterSample+phase]/sample
		most = max(most, abs(estimated/time-all[meterPhases+phase]/allTime))
	}
	return most
}

func abs(x float64) float64 { return max(x, -x) }
