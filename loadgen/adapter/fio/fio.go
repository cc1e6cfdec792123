// Package fio runs fio on a directory and turns its status reports into loadgen's metrics. The
// reports are cumulative, with every latency in about 2 % steps, so nothing is lost between two
// of them: what the tool reported once is counted, and the difference to the last report is added.
//
// fio does not report when an I/O was meant to start, so there are service times only.
package fio

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

const (
	// forever is fio's runtime: ten years.
	forever = "3650d"
	// stopGrace is how long fio may take to end its I/O and print its last report.
	stopGrace = 10 * time.Second
	// files names fio's files in the directory; they are removed by Cleanup.
	files = "loadgen-fio"
)

// Config configures a run of fio.
type Config struct {
	// Path is the program.
	Path string
	// Directory is where the files are made.
	Directory string
	// RW, BlockSize, IODepth, Jobs, Size and Engine are fio's rw, bs, iodepth, numjobs, size and ioengine.
	RW, BlockSize, Size, Engine string
	IODepth, Jobs               int
	// ReadShare is the percentage of reads in a mix; 0: fio's own 50.
	ReadShare int
	// Buffered goes through the page cache.
	Buffered bool
	// Fdatasync syncs after each so many writes; 0: never.
	Fdatasync int
	// Rate is I/Os per second over all jobs and for each direction; 0: as many as possible.
	Rate float64
}

// perJob is the rate of a job in each direction, of which fio takes whole ones.
func (c Config) perJob() int { return max(1, int(c.Rate/float64(c.Jobs)+0.5)) }

// Offered is the I/Os per second that fio is to do, over all jobs and both directions; 0: as many as possible.
func (c Config) Offered() float64 {
	switch {
	case c.Rate <= 0:
		return 0
	case c.RW == "rw" || c.RW == "randrw":
		return float64(2 * c.perJob() * c.Jobs)
	}
	return float64(c.perJob() * c.Jobs)
}

// Profile names what the load does.
func (c Config) Profile() string {
	name := c.RW + "-" + c.BlockSize + "-d" + strconv.Itoa(c.IODepth)
	if c.Jobs > 1 {
		name += "-j" + strconv.Itoa(c.Jobs)
	}
	if c.Fdatasync > 0 {
		name += "-sync"
	}
	return name
}

// Tool is a fio load.
type Tool struct {
	config Config
	load   *metrics.Load
	syncs  *metrics.Load // nil without Fdatasync
	log    *slog.Logger
	up     func()
	pid    atomic.Int64
	total  atomic.Uint64 // I/Os by fio's own count, of all runs
}

// New checks config. syncs takes the sync calls; it is nil if there are none. up is called when
// I/O is seen.
func New(config Config, load, syncs *metrics.Load, log *slog.Logger, up func()) (*Tool, error) {
	info, err := os.Stat(config.Directory)
	if err != nil {
		return nil, fmt.Errorf("fio's directory: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("fio's directory: %s is none", config.Directory)
	}
	return &Tool{config: config, load: load, syncs: syncs, log: log, up: up}, nil
}

// place returns the arguments for which files, how many and how large.
func (t *Tool) place() []string {
	c := t.config
	return []string{
		// fio takes a colon for the end of one of several folders.
		"--name=" + files, "--directory=" + strings.ReplaceAll(c.Directory, ":", `\:`), "--filename_format=" + files + ".$jobnum",
		"--size=" + c.Size, "--numjobs=" + strconv.Itoa(c.Jobs),
		"--thread", // one process, so that a kill ends all of it
	}
}

func (t *Tool) arguments() []string {
	c := t.config
	a := append(t.place(),
		"--rw="+c.RW, "--bs="+c.BlockSize, "--ioengine="+c.Engine, "--iodepth="+strconv.Itoa(c.IODepth),
		"--group_reporting", "--time_based", "--runtime="+forever,
		"--output-format=json+", "--status-interval=1", "--eta=never",
		"--lat_percentiles=1", "--clat_percentiles=0", // submission included
		"--continue_on_error=io", "--randrepeat=0",
	)
	if c.ReadShare > 0 {
		a = append(a, "--rwmixread="+strconv.Itoa(c.ReadShare))
	}
	if !c.Buffered {
		a = append(a, "--direct=1")
	}
	if c.Fdatasync > 0 {
		a = append(a, "--fdatasync="+strconv.Itoa(c.Fdatasync))
	}
	if c.Rate > 0 {
		// At even distances: with rate_process=poisson fio 3.33 dies of a division by zero now and then.
		a = append(a, "--rate_iops="+strconv.Itoa(c.perJob()))
	}
	return a
}

// run is what is known of one fio process.
type run struct {
	*Tool
	last      counts
	began     time.Time // when its runtime was 0
	lastWords string
	noting    sync.Mutex
	failed    bool // it reports that a call of its own failed, which another time may not
}

// Once runs fio until it ends or ctx does.
func (t *Tool) Once(ctx context.Context) adapter.Ended {
	r := &run{Tool: t, last: counts{io: map[time.Duration]uint64{}, sync: map[time.Duration]uint64{}}}
	split := splitter{report: r.report, other: r.message}
	p := adapter.Process{
		Command: append([]string{t.config.Path}, t.arguments()...), Env: []string{"LC_ALL=C"},
		Stop: syscall.SIGINT, Grace: stopGrace,
		Stdout: split.line, Stderr: func(line string) { t.log.Debug("line of fio", "line", line); r.note(line) },
		Started: func(pid int) { t.pid.Store(int64(pid)) },
	}
	err := p.Run(ctx)
	t.pid.Store(0)
	t.total.Add(r.last.total)
	if err == nil || adapter.KilledBy(err) == 0 {
		// It ended in good order, so its last report is complete.
		var counted uint64
		for _, n := range r.last.io {
			counted += n
		}
		if counted < r.last.total {
			t.load.Lost(r.last.total - counted)
		}
	}
	return adapter.End("fio", err, r.lastWords, false, r.last.total == 0 && !r.failed)
}

func (r *run) message(line string) {
	r.log.Debug("line of fio", "line", line)
	r.note(line)
}

// callFailed fits fio's complaint of a call: "pid=4, err=28/file:filesetup.c:238, func=write, error=No space left on
// device".
var callFailed = regexp.MustCompile(`err=(\d+)/file:`)

// never are the errors of calls that fail in the same way each time: what fio is to do is not possible there.
var never = []syscall.Errno{syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.ENOENT, syscall.ENOTDIR}

// note keeps fio's first complaint, to report it if fio ends. One of a call explains more than those before it. fio
// writes to either stream.
func (r *run) note(line string) {
	r.noting.Lock()
	defer r.noting.Unlock()
	line = strings.TrimSpace(line)
	if m := callFailed.FindStringSubmatch(line); m != nil && !r.failed {
		if number, err := strconv.Atoi(m[1]); err == nil && !slices.Contains(never, syscall.Errno(number)) {
			r.failed = true
			if kind := adapter.KindOf(line); kind == metrics.Storage {
				r.load.Error(kind)
			}
		}
		r.lastWords = strings.TrimPrefix(line, "fio: ")
	}
	complaint := strings.HasPrefix(line, "fio: ") && !strings.HasPrefix(line, "fio: terminating") || strings.Contains(line, "No I/O performed") || strings.HasPrefix(line, "Bad option") ||
		strings.HasPrefix(line, files+": ") && !strings.Contains(line, "(g=") && !strings.Contains(line, "(groupid=") && !strings.Contains(line, "Laying out")
	if r.lastWords == "" && complaint {
		r.lastWords = strings.TrimPrefix(line, "fio: ")
	}
}

// report adds what is new in a report.
func (r *run) report(text []byte) {
	parsed, err := ParseReport(text)
	if err != nil {
		r.load.ParseError()
		r.log.Error("report left out; the next one makes up for it", "err", err)
		return
	}
	now, _ := parsed.counts() // checked by ParseReport
	if now.total < r.last.total {
		r.load.ParseError()
		r.log.Error("fio's counts went back; report left out", "from", r.last.total, "to", now.total)
		return
	}
	// By fio's clock: when a report comes is later than what it is of, the last one by as long as fio takes to end.
	if r.began.IsZero() {
		r.began = time.Now().Add(-now.ran)
		r.load.Report(r.began, func() {})
	}
	if now.total > 0 {
		r.up() // before what it has done is counted: that is from then on
	}
	until := r.began.Add(now.ran)
	if now.ran == 0 {
		until = time.Now() // it does not report one
	}
	r.load.Report(until, func() {
		r.load.Reported(float64(now.total - r.last.total)) // reports come once a second
		add(r.load, r.last.io, now.io)
		if r.syncs != nil {
			add(r.syncs, r.last.sync, now.sync)
		}
		for n := r.last.errors; n < now.errors; n++ {
			r.load.Error(metrics.Other)
		}
	})
	r.last = now
}

func add(load *metrics.Load, last, now map[time.Duration]uint64) {
	for latency, n := range now {
		if was := last[latency]; n > was {
			load.Offered(n - was)
			load.Served(latency, n-was)
		}
	}
}

// Total is the number of I/Os that the fio processes reported, of those that have ended.
func (t *Tool) Total() uint64 { return t.total.Load() }

// PID is the process ID of the fio under way, 0 if there is none.
func (t *Tool) PID() int { return int(t.pid.Load()) }

// Make writes the files in full and syncs them, unless they are there. Otherwise fio only reserves the room of files
// that it writes to, and the first write of each block allocates it, which on a thin volume takes longer than any later
// one.
func (t *Tool) Make(ctx context.Context) error {
	last := ""
	p := adapter.Process{
		Command: append([]string{t.config.Path}, append(t.place(), "--rw=write", "--overwrite=1", "--create_only=1")...), Env: []string{"LC_ALL=C"},
		Stop: syscall.SIGINT, Grace: stopGrace,
		Stderr: func(line string) { last = line },
	}
	t.log.Info("writing fio's files", "directory", t.config.Directory, "files", t.config.Jobs, "size", t.config.Size)
	if err := p.Run(ctx); err != nil {
		return adapter.Describe("fio, writing its files", err, last)
	}
	return nil
}

// Cleanup removes fio's files.
func (t *Tool) Cleanup() error {
	names, err := fs.Glob(os.DirFS(t.config.Directory), files+".*") // the folder's own name is no pattern
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := os.Remove(filepath.Join(t.config.Directory, name)); err != nil {
			return err
		}
	}
	return nil
}
