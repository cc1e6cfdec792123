package collector

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// LogBurst bounds a log that others cause lines of: so many at once, and then one line in each logInterval.
	LogBurst    = 50
	logInterval = time.Second
)

// boundedHandler drops the lines of a log above its rate, and logs their number with the next line.
type boundedHandler struct {
	slog.Handler
	*logBudget
}

type logBudget struct {
	now func() time.Time

	mu      sync.Mutex
	left    int
	filled  time.Time
	dropped int
}

// NewBoundedHandler returns a handler that passes on LogBurst lines at once, and then one in each logInterval.
func NewBoundedHandler(h slog.Handler) boundedHandler {
	return boundedHandler{h, &logBudget{now: time.Now, left: LogBurst, filled: time.Now()}}
}

// Handle implements slog.Handler.
func (h boundedHandler) Handle(ctx context.Context, r slog.Record) error {
	dropped, ok := h.take()
	if !ok {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int("lines_left_out", dropped))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h boundedHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return boundedHandler{h.Handler.WithAttrs(a), h.logBudget}
}

// WithGroup implements slog.Handler.
func (h boundedHandler) WithGroup(name string) slog.Handler {
	return boundedHandler{h.Handler.WithGroup(name), h.logBudget}
}

// take reports whether a line may be written, and how many were dropped since the last.
func (b *logBudget) take() (dropped int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if n := int(now.Sub(b.filled) / logInterval); n > 0 {
		b.left = min(LogBurst, b.left+n)
		b.filled = b.filled.Add(time.Duration(n) * logInterval)
	}
	if b.left == 0 {
		b.dropped++
		return 0, false
	}
	b.left--
	dropped, b.dropped = b.dropped, 0
	return dropped, true
}
