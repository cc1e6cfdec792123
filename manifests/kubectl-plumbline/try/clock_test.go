package try

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// A clock that is set, or a machine that sleeps, ends what is measured at the scrape before, and that is noted.
func TestClockJumps(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("plumbline_a 1\n")) }))
	defer server.Close()
	for name, jump := range map[string]time.Duration{"ahead, or slept": time.Hour, "back": -time.Hour, "corrected": time.Second} {
		var notes []error
		m, err := New(func(err error) { notes = append(notes, err) })
		if err != nil {
			t.Fatal(err)
		}
		// Three scrapes a second apart, and then the jump.
		now, readings := moment{wall: time.Unix(1e9, 0)}, 0
		m.clock = func() moment {
			if readings++; readings > 1 {
				now.wall, now.running = now.wall.Add(time.Second), now.running+time.Second
			}
			if readings == 5 {
				now.wall = now.wall.Add(jump)
			}
			return now
		}
		if err := m.Measure(t.Context(), 6*time.Second, []Exporter{{URL: server.URL, Client: http.DefaultClient, Target: map[string]string{"job": "a"}}}, func(bool) {}); err != nil {
			t.Fatal(err)
		}
		want, noted := 6*time.Second, jump.Abs() > mostJump
		if noted {
			want = 2 * time.Second
		}
		if text := errors.Join(notes...); m.Window() != want || (text != nil && strings.Contains(text.Error(), "measured until then")) != noted {
			t.Errorf("%s: measured for %v, want %v; notes: %v", name, m.Window(), want, text)
		}
	}
}
