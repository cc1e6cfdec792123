package collector

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// A log that others cause lines of has a bounded rate, and reports how many were dropped.
func TestBoundedLog(t *testing.T) {
	var out bytes.Buffer
	h := NewBoundedHandler(slog.NewTextHandler(&out, nil))
	now := h.filled
	h.now = func() time.Time { return now }
	log := slog.New(h).With("collector", "query")
	for i := range 1000 {
		log.Info(fmt.Sprint("line ", i))
	}
	if n := strings.Count(out.String(), "\n"); n != LogBurst {
		t.Errorf("%d lines at once, want %d", n, LogBurst)
	}
	now = now.Add(2 * logInterval)
	for range 10 {
		log.Info("later")
	}
	if n := strings.Count(out.String(), "\n"); n != LogBurst+2 {
		t.Errorf("%d lines two seconds later, want %d", n, LogBurst+2)
	}
	if !strings.Contains(out.String(), fmt.Sprintf("lines_left_out=%d\n", 1000-LogBurst)) {
		t.Errorf("the log does not report what was left out:\n%s", out.String()[max(0, out.Len()-300):])
	}
	now = now.Add(time.Hour)
	out.Reset()
	for range 1000 {
		log.Info("much later")
	}
	if n := strings.Count(out.String(), "\n"); n != LogBurst {
		t.Errorf("%d lines after an hour, want %d", n, LogBurst)
	}
}
