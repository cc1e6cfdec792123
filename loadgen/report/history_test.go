package report

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Prometheus (a fake one) that was started in the middle of a soak, forgot its beginning, or did not run for a time,
// has no alerts of then. The report does not take that for their absence. One that ran all the time is not mentioned.
func TestPrometheusHistory(t *testing.T) {
	minute := func(n float64) time.Time { return began.Add(time.Duration(n * float64(time.Minute))) }
	for name, c := range map[string]struct {
		there func(time.Time) bool
		want  string
	}{
		"whole":   {func(time.Time) bool { return true }, ""},
		"late":    {func(at time.Time) bool { return !at.Before(minute(12)) }, "from 2026-11-21 00:00:00 to 2026-11-21 00:11:55: "},
		"stopped": {func(at time.Time) bool { return at.Before(minute(15)) }, "from 2026-11-21 00:15:00 to 2026-11-21 00:20:00: "},
		"holes": {func(at time.Time) bool { return at.Minute() != 3 && at.Minute() != 7 },
			"from 2026-11-21 00:03:00 to 2026-11-21 00:03:55, from 2026-11-21 00:07:00 to 2026-11-21 00:07:55: "},
		"many holes": {func(at time.Time) bool { return at.Minute()%2 == 0 }, "to 2026-11-21 00:09:55, and 5 times more: "},
		"none":       {func(time.Time) bool { return false }, "from 2026-11-21 00:00:00 to 2026-11-21 00:20:00: "},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			var values []string
			if q.FormValue("query") == historyQuery {
				from, err := strconv.ParseInt(q.FormValue("start"), 10, 64)
				to, endErr := strconv.ParseInt(q.FormValue("end"), 10, 64)
				step, stepErr := time.ParseDuration(q.FormValue("step"))
				if err != nil || endErr != nil || stepErr != nil {
					t.Errorf("the query is %v", q.Form)
					return
				}
				for at := from; at <= to; at += int64(step.Seconds()) {
					if c.there(time.Unix(at, 0).UTC()) {
						values = append(values, fmt.Sprintf(`[%d,"3"]`, at))
					}
				}
			}
			fmt.Fprintf(w, `{"status":"success","data":{"result":[{"metric":{},"values":[%s]}]}}`, strings.Join(values, ","))
		}))
		r := New("", run(1))
		r.AddPrometheus(t.Context(), server.URL, nil)
		server.Close()
		var notes []string
		for _, n := range r.Notes {
			if strings.Contains(n, historyQuery) {
				notes = append(notes, n)
			}
		}
		switch {
		case c.want == "" && len(notes) > 0, c.want != "" && len(notes) != 1:
			t.Errorf("%s: notes are %q", name, notes)
		case c.want != "" && !strings.Contains(notes[0], c.want+"layers, alerts and restarts of that time are not known"):
			t.Errorf("%s: the note is %q, want %q", name, notes[0], c.want)
		}
	}
}
