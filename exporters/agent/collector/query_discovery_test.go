package collector

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// Notices of many processes need no more room than those of a few, and report that there were more.
func TestNoticesBounded(t *testing.T) {
	n := newNotices()
	for pid := 1; pid <= maxNotices; pid++ {
		n.add(pid)
		n.add(pid) // one process twice is one
	}
	if pids, more := n.take(); len(pids) != maxNotices || more {
		t.Errorf("%d processes, more: %v", len(pids), more)
	}
	for pid := 1; pid <= 10000; pid++ {
		n.add(pid)
	}
	if pids, more := n.take(); len(pids) != maxNotices || !more {
		t.Errorf("%d processes of 10,000, more: %v", len(pids), more)
	}
	n.add(0) // of another PID namespace
	if pids, more := n.take(); len(pids) != 0 || !more {
		t.Errorf("%v, more: %v for an unknown process", pids, more)
	}
	if pids, more := n.take(); len(pids) != 0 || more {
		t.Errorf("%v, more: %v without notices", pids, more)
	}
	select {
	case <-n.ready:
	default:
		t.Error("nobody is notified")
	}
}

// A log that others cause lines of has a bounded rate, and reports how many were dropped.
func TestBoundedLog(t *testing.T) {
	var out bytes.Buffer
	h := newBoundedHandler(slog.NewTextHandler(&out, nil))
	now := h.filled
	h.now = func() time.Time { return now }
	log := slog.New(h).With("collector", "query")
	for i := range 1000 {
		log.Info(fmt.Sprint("line ", i))
	}
	if n := strings.Count(out.String(), "\n"); n != logBurst {
		t.Errorf("%d lines at once, want %d", n, logBurst)
	}
	now = now.Add(2 * logInterval)
	for range 10 {
		log.Info("later")
	}
	if n := strings.Count(out.String(), "\n"); n != logBurst+2 {
		t.Errorf("%d lines two seconds later, want %d", n, logBurst+2)
	}
	if !strings.Contains(out.String(), fmt.Sprintf("lines_left_out=%d\n", 1000-logBurst)) {
		t.Errorf("the log does not report what was left out:\n%s", out.String()[max(0, out.Len()-300):])
	}
	now = now.Add(time.Hour)
	out.Reset()
	for range 1000 {
		log.Info("much later")
	}
	if n := strings.Count(out.String(), "\n"); n != logBurst {
		t.Errorf("%d lines after an hour, want %d", n, logBurst)
	}
}
