package report

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/soak"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// An outage that begins in a fault and lasts longer is the fault's to its end, and so are the failures in it; later
// ones are not.
func TestOutageOutlastsItsFault(t *testing.T) {
	for name, c := range map[string]struct {
		from, failing time.Duration // of the outage, and to when transactions fail; it ends in minute 18
		planned       bool
	}{
		"in the fault":        {14 * time.Minute, 18 * time.Minute, true},
		"longer than that":    {14 * time.Minute, 19 * time.Minute, false},
		"long after a fault":  {16*time.Minute + 30*time.Second, 18 * time.Minute, false},
		"shortly after fault": {15*time.Minute + 30*time.Second, 18 * time.Minute, true},
	} {
		d := run(1)
		d.Events = slices.DeleteFunc(d.Events, func(e soak.Event) bool { return e.What == soak.Failed || e.Time.Equal(began.Add(6*time.Minute)) })
		for i := range d.Samples {
			s := &d.Samples[i]
			at := s.Time.Sub(began)
			if s.StorageClass != "r3" || at <= c.from || at > c.failing {
				continue
			}
			s.Failed, s.Completed, s.Response, s.Service = 100, 0, stats.Distribution{}, stats.Distribution{}
			s.Outages = nil
			if at == 18*time.Minute {
				s.Outages = []result.Outage{{Began: began.Add(c.from), Seconds: (18*time.Minute - c.from).Seconds(), Over: true}}
			}
		}
		if v := New("", d).Verdict(); v.Planned != c.planned {
			t.Errorf("%s: the verdict is %q", name, strings.Join(v.Sentences, " "))
		}
	}
}
