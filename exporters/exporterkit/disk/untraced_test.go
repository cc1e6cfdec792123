package disk

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Each path is logged when it begins to be untraced, and counted as long as it is.
func TestUntraced(t *testing.T) {
	var log bytes.Buffer
	u := NewUntraced(slog.New(slog.NewTextHandler(&log, nil)), "replica")
	bad := errors.New("no mount has it")
	for step, test := range []struct {
		paths map[string]error
		count float64
		lines []string
	}{
		{map[string]error{"/a": bad, "/b": bad, "/c": nil}, 2, []string{"/a", "/b"}},
		{map[string]error{"/a": bad, "/b": bad, "/c": bad}, 3, []string{"/c"}},
		{map[string]error{"/a": nil, "/b": bad}, 1, nil},
		{nil, 0, nil},
		{map[string]error{"/a": bad}, 1, []string{"/a"}},
	} {
		log.Reset()
		for path, err := range test.paths {
			u.Note(path, err)
			u.Note(path, err) // two volumes may be in one directory
		}
		ch := make(chan prometheus.Metric, 1)
		u.Send(ch)
		var sent dto.Metric
		if err := (<-ch).Write(&sent); err != nil {
			t.Fatal(err)
		}
		if sent.Gauge.GetValue() != test.count {
			t.Errorf("step %d: %v paths, want %v", step, sent.Gauge.GetValue(), test.count)
		}
		if n := strings.Count(log.String(), "\n"); n != len(test.lines) {
			t.Errorf("step %d: %d lines, want %d:\n%s", step, n, len(test.lines), log.String())
		}
		for _, path := range test.lines {
			if !strings.Contains(log.String(), "path="+path+" ") || !strings.Contains(log.String(), "no mount has it") {
				t.Errorf("step %d: %s is not logged:\n%s", step, path, log.String())
			}
		}
	}
}
