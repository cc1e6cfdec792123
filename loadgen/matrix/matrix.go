// Package matrix repeats published storage benchmarks, on every storage class in turn, and puts
// the results side by side with what makes them doubtful.
package matrix

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter/fio"
	"github.com/plumbline/plumbline/loadgen/adapter/sysbench"
)

// Matrix is a published experiment.
type Matrix struct {
	// Source names whose it is and where it differs from what is done here.
	Source string
	// Steps are its runs, sizes and times as published.
	Steps []Step
}

// Step is one run on one storage class. Exactly one of its parts is set.
type Step struct {
	Name string
	// Duration is how long it runs; 0 for Init.
	Duration time.Duration
	FIO      *FIO
	Init     *Init
	Pgbench  *Pgbench
	Sysbench *Sysbench
	Scan     *Scan
}

// FIO is a run of fio with a file of Size MiB for each job.
type FIO struct {
	RW                    string
	BlockKiB, Depth, Jobs int
	SizeMiB               int
	Fdatasync, ReadShare  int
}

// Init makes pgbench's tables at a scale.
type Init struct{ Scale int }

// Pgbench is a closed-loop run, on tables of a scale, of pgbench's own script; tpcb-like if that is empty.
type Pgbench struct {
	Clients, Scale int
	Builtin        string
}

// Sysbench is a closed-loop run of oltp_read_write.
type Sysbench struct{ Threads, Tables, Rows int }

// Scan reads pgbench's largest table, of a scale, from its start to its end, again and again.
type Scan struct{ Scale int }

// Matrices are all known, by name.
var Matrices = map[string]Matrix{
	"dalibo": {
		Source: "Dalibo: pgbench at scale 250, its tables made and then 1 to 16 clients for 300 s each; fio 8k at depth 32.",
		Steps: append([]Step{{Name: "pgbench init", Init: &Init{250}}},
			append(pgbenchSteps(250, 300*time.Second, 1, 2, 4, 8, 16),
				Step{Name: "fio read 8k d32", Duration: time.Minute, FIO: &FIO{RW: "read", BlockKiB: 8, Depth: 32, Jobs: 1, SizeMiB: 4096}},
				Step{Name: "fio write 8k d32", Duration: time.Minute, FIO: &FIO{RW: "write", BlockKiB: 8, Depth: 32, Jobs: 1, SizeMiB: 4096}})...),
	},
	"sysperfeval": {
		Source: "sysperfeval: a sequential read of a PostgreSQL table, and fio 8k sequential reads by 1 to 32 jobs. PostgreSQL counts a column here, so that the rows are read but not sent, and goes through the page cache: its direct I/O is a developer's option of 16 and later.",
		Steps:  append([]Step{{Name: "PostgreSQL scan", Duration: time.Minute, Scan: &Scan{100}}}, fioJobs("read", 8, time.Minute, 1, 2, 4, 8, 16, 32)...),
	},
	"qiita-cstor": {
		Source: "Qiita article on cStor: fio with 1k, 512k and 1024k blocks at depth 128; sequential reads and writes here.",
		Steps:  fioBlocks(128, time.Minute, 1, 512, 1024),
	},
	"dbench": {
		Source: "leeliu/dbench: its nine fio runs of 15 s on a file of 2 GiB. Jobs of the sequential runs have a file each here, not parts of one; the ramp of 2 s is the warm-up.",
		Steps: []Step{
			dbench("read_iops", FIO{RW: "randread", BlockKiB: 4, Depth: 64}), dbench("write_iops", FIO{RW: "randwrite", BlockKiB: 4, Depth: 64}),
			dbench("read_bw", FIO{RW: "randread", BlockKiB: 128, Depth: 64}), dbench("write_bw", FIO{RW: "randwrite", BlockKiB: 128, Depth: 64}),
			dbench("read_latency", FIO{RW: "randread", BlockKiB: 4, Depth: 4}), dbench("write_latency", FIO{RW: "randwrite", BlockKiB: 4, Depth: 4}),
			dbench("read_seq", FIO{RW: "read", BlockKiB: 1024, Depth: 16, Jobs: 4}), dbench("write_seq", FIO{RW: "write", BlockKiB: 1024, Depth: 16, Jobs: 4}),
			dbench("rw_mix", FIO{RW: "randrw", BlockKiB: 4, Depth: 64, ReadShare: 75}),
		},
	},
	"mayastor": {
		Source: "Mayastor's sysbench runs: 10 threads on 10 tables of 10 million rows, 300 threads on 3 tables of 20 million.",
		Steps: []Step{
			{Name: "sysbench 10 threads", Duration: 5 * time.Minute, Sysbench: &Sysbench{Threads: 10, Tables: 10, Rows: 10_000_000}},
			{Name: "sysbench 300 threads", Duration: 5 * time.Minute, Sysbench: &Sysbench{Threads: 300, Tables: 3, Rows: 20_000_000}},
		},
	},
	"cnpg-local-ssd": {
		Source: "Setiawan: CloudNativePG on a local SSD and on Longhorn with 1 and 2 replicas; pgbench at scale 100, its three scripts, 1 to 100 clients for 60 s each. The article does not name the script that it calls read-write: simple-update here.",
		Steps: slices.Concat(pgbenchScripts("select-only", 100, time.Minute, 1, 10, 25, 50, 100),
			pgbenchScripts("simple-update", 100, time.Minute, 1, 10, 25, 50, 100), pgbenchScripts("tpcb-like", 100, time.Minute, 1, 10, 25, 50, 100)),
	},
	"wal": {
		Source: "Plumbline: what a commit does and none of the others tries: one 8k write at a time, and fdatasync after each.",
		Steps:  []Step{{Name: "fio wal 8k", Duration: time.Minute, FIO: &FIO{RW: "write", BlockKiB: 8, Depth: 1, Jobs: 1, SizeMiB: 256, Fdatasync: 1}}},
	},
}

// Names lists the matrices.
func Names() string { return strings.Join(slices.Sorted(maps.Keys(Matrices)), ", ") }

// only returns the steps of some names, all if there are none, of the matrix that is called name.
func (m Matrix) only(name string, names []string) ([]Step, error) {
	if len(names) == 0 {
		return m.Steps, nil
	}
	var steps []Step
	var known []string
	for _, s := range m.Steps {
		known = append(known, s.Name)
		if slices.Contains(names, s.Name) {
			steps = append(steps, s)
		}
	}
	for _, wanted := range names {
		if !slices.Contains(known, wanted) {
			return nil, fmt.Errorf("no step of %s is named %q; there are %s", name, wanted, strings.Join(known, ", "))
		}
	}
	return steps, nil
}

func pgbenchSteps(scale int, d time.Duration, clients ...int) (steps []Step) {
	for _, c := range clients {
		steps = append(steps, Step{Name: "pgbench " + plural(c, "client"), Duration: d, Pgbench: &Pgbench{Clients: c, Scale: scale}})
	}
	return steps
}

// pgbenchScripts are runs of one of pgbench's own scripts.
func pgbenchScripts(builtin string, scale int, d time.Duration, clients ...int) (steps []Step) {
	for _, s := range pgbenchSteps(scale, d, clients...) {
		s.Name = strings.Replace(s.Name, "pgbench", "pgbench "+builtin, 1)
		s.Pgbench.Builtin = builtin
		steps = append(steps, s)
	}
	return steps
}

func fioJobs(rw string, kib int, d time.Duration, jobs ...int) (steps []Step) {
	for _, j := range jobs {
		steps = append(steps, Step{Name: fmt.Sprintf("fio %s %dk %s", rw, kib, plural(j, "job")), Duration: d,
			FIO: &FIO{RW: rw, BlockKiB: kib, Depth: 1, Jobs: j, SizeMiB: 1024}})
	}
	return steps
}

func fioBlocks(depth int, d time.Duration, kib ...int) (steps []Step) {
	for _, rw := range []string{"read", "write"} {
		for _, k := range kib {
			steps = append(steps, Step{Name: fmt.Sprintf("fio %s %dk d%d", rw, k, depth), Duration: d,
				FIO: &FIO{RW: rw, BlockKiB: k, Depth: depth, Jobs: 1, SizeMiB: 4096}})
		}
	}
	return steps
}

func dbench(name string, f FIO) Step {
	f.SizeMiB, f.Jobs = 2048, max(f.Jobs, 1)
	return Step{Name: name, Duration: 15 * time.Second, FIO: &f}
}

// copies is a class's number of replicas in words; 0 is not known.
func copies(n int) string {
	if n == 0 {
		return "how many replicas is not known"
	}
	return plural(n, "replica")
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// Least sizes, below which a run means nothing even on a small machine.
const (
	leastMiB  = 32
	leastRows = 1000
)

// scaled shrinks a step to fit a small machine: sizes and times, not the number of clients,
// except that there are at most maxClients. No time is shrunk below least.
func (s Step) scaled(by float64, maxClients int, least time.Duration) Step {
	size := func(n, least int) int { return max(min(n, least), int(float64(n)*by+0.5)) }
	if s.Duration > 0 {
		s.Duration = max(min(s.Duration, least), time.Duration(float64(s.Duration)*by))
	}
	switch {
	case s.FIO != nil:
		f := *s.FIO
		f.SizeMiB = size(f.SizeMiB, leastMiB)
		f.Jobs = min(f.Jobs, maxClients)
		s.FIO = &f
	case s.Init != nil:
		s.Init = &Init{size(s.Init.Scale, 1)}
	case s.Pgbench != nil:
		s.Pgbench = &Pgbench{min(s.Pgbench.Clients, maxClients), size(s.Pgbench.Scale, 1), s.Pgbench.Builtin}
	case s.Sysbench != nil:
		b := *s.Sysbench
		b.Threads, b.Rows = min(b.Threads, maxClients), size(b.Rows, leastRows)
		s.Sysbench = &b
	case s.Scan != nil:
		s.Scan = &Scan{size(s.Scan.Scale, 1)}
	}
	return s
}

// clients is how many clients, threads or jobs a step has.
func (s Step) clients() int {
	switch {
	case s.FIO != nil:
		return s.FIO.Jobs
	case s.Pgbench != nil:
		return s.Pgbench.Clients
	case s.Sysbench != nil:
		return s.Sysbench.Threads
	}
	return 1
}

func (f FIO) config(path, directory string) fio.Config {
	return fio.Config{Path: path, Directory: directory, RW: f.RW, BlockSize: strconv.Itoa(f.BlockKiB) + "k", IODepth: f.Depth, Jobs: f.Jobs,
		Size: strconv.Itoa(f.SizeMiB) + "m", Engine: "libaio", Fdatasync: f.Fdatasync, ReadShare: f.ReadShare}
}

func (b Sysbench) config(path string, target sysbench.Target) sysbench.Config {
	return sysbench.Config{Path: path, Script: "oltp_read_write", Target: target, Threads: b.Threads, Tables: b.Tables, TableSize: b.Rows}
}
