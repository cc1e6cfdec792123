package exporterkit

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

const (
	// maxPanicText and maxStack bound what one panic writes to the log.
	maxPanicText = 512
	maxStack     = 8 << 10
	// maxOnce bounds how many different things are logged once each.
	maxOnce = 200
)

// Recovered calls f and returns its error, or one that names the place of a panic: what peers answer must not end an
// exporter. It cannot recover panics in goroutines that f starts.
func Recovered(f func() error) (err error) {
	err = errGone // if the goroutine ends below
	defer func() {
		if v := recover(); v != nil {
			err = newPanicError(v, debug.Stack())
		}
	}()
	return f()
}

// panicError is a panic that was recovered.
type panicError struct{ text, place, stack string }

func (e *panicError) Error() string { return fmt.Sprintf("panic: %s at %s", e.text, e.place) }

func newPanicError(value any, stack []byte) *panicError {
	return &panicError{text: label.Text(printed(value), maxPanicText), place: panicPlace(string(stack)), stack: string(stack[:min(len(stack), maxStack)])}
}

// printed is the text of a panic's value, whose own method may panic too.
func printed(value any) (text string) {
	defer func() {
		if recover() != nil {
			text = fmt.Sprintf("a %T", value)
		}
	}()
	return fmt.Sprint(value)
}

// panicPlace is the line that panicked: in a stack, the first one below the call of panic that is
// not the runtime's.
func panicPlace(stack string) string {
	_, below, found := strings.Cut(stack, "\npanic(")
	if !found {
		return "an unknown place"
	}
	lines := strings.Split(below, "\n")
	for i := 2; i+1 < len(lines); i += 2 {
		if !strings.HasPrefix(lines[i], "runtime.") {
			place, _, _ := strings.Cut(strings.TrimSpace(lines[i+1]), " +")
			return place
		}
	}
	return "an unknown place"
}

// logOnce logs each thing once, and a bounded number of things.
type logOnce struct {
	log *slog.Logger

	mu   sync.Mutex
	seen map[string]bool
}

func newLogOnce(log *slog.Logger) *logOnce { return &logOnce{log: log, seen: map[string]bool{}} }

// first reports whether key is new and still to be logged.
func (l *logOnce) first(key string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.seen[key] || len(l.seen) >= maxOnce {
		return false
	}
	l.seen[key] = true
	return true
}
