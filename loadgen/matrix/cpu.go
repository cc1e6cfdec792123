package matrix

import (
	"encoding/json"
	"math"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Share is one from 0 to 1; one that is not known is no number, and null in JSON.
type Share float64

var unknownShare = Share(math.NaN())

// known reports whether the share is known.
func (s Share) known() bool { return !math.IsNaN(float64(s)) }

// MarshalJSON implements json.Marshaler.
func (s Share) MarshalJSON() ([]byte, error) {
	if !s.known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(s))
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *Share) UnmarshalJSON(text []byte) error {
	if *s = unknownShare; string(text) == "null" {
		return nil
	}
	return json.Unmarshal(text, (*float64)(s))
}

// procStat is the machine's CPU time so far.
type procStat struct{ idle, all float64 }

func (r *Runner) cpu() (procStat, error) {
	fs, err := procfs.NewFS(r.ProcFS)
	if err != nil {
		return procStat{}, err
	}
	s, err := fs.Stat()
	if err != nil {
		return procStat{}, err
	}
	c := s.CPUTotal
	idle := c.Idle + c.Iowait
	return procStat{idle, idle + c.User + c.Nice + c.System + c.IRQ + c.SoftIRQ + c.Steal}, nil
}

// idleSince is a share, from 0 to 1. The kernel may take some of the time that waits for I/O back, and sums of seconds
// are not exact.
func (s procStat) idleSince(before procStat) float64 {
	if s.all <= before.all {
		return 1
	}
	return min(max((s.idle-before.idle)/(s.all-before.all), 0), 1)
}

// watch is what the machine and the generator had used when it began.
type watch struct {
	runner *Runner
	began  time.Time
	cpu    procStat
	err    error
	own    time.Duration
}

func (r *Runner) watch() *watch {
	w := &watch{runner: r, began: time.Now(), own: generatorTime()}
	w.cpu, w.err = r.cpu()
	return w
}

// into writes to a row what was used since.
func (w *watch) into(row *Row) {
	row.Began, row.Ended = w.began.UTC(), time.Now().UTC()
	if took := row.Ended.Sub(row.Began); took > 0 {
		row.Generator = (generatorTime() - w.own).Seconds() / took.Seconds()
	}
	if after, err := w.runner.cpu(); err == nil && w.err == nil {
		row.CPUIdle = Share(after.idleSince(w.cpu))
	}
}

// generatorTime is the CPU time of this process and of the tools it started, which count when they have
// ended: a run's tool has when the run is over.
func generatorTime() (sum time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			sum += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return sum
}
