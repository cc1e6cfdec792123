package collector

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReadTargets(t *testing.T) {
	const good = "- {volume: a, engine: '127.0.0.1:9501', replicas: [{name: a-1, address: '127.0.1.1:10000', directory: /r}]}\n"
	for name, test := range map[string]struct {
		text    string
		volumes string // those that are usable
		err     string // part of the error's text; "" for none
	}{
		"empty":             {"", "", ""},
		"one":               {"targets:\n" + good, "a", ""},
		"no volume":         {"targets:\n- engine: 127.0.0.1:1\n" + good, "a", "targets[0]: volume is missing"},
		"no engine":         {"targets:\n- volume: b\n" + good, "a", "volume b: engine: missing"},
		"engine is no port": {"targets:\n- {volume: b, engine: localhost}\n", "", `"localhost" is not host:port`},
		"twice":             {"targets:\n" + good + good, "a", "volume a is listed twice"},
		"replica twice":     {"targets:\n- {volume: b, engine: 'h:1', replicas: [{name: r, address: 'h:2'}, {name: r, address: 'h:3'}]}\n", "", "replica r is listed twice"},
		"replica address":   {"targets:\n- {volume: b, engine: 'h:1', replicas: [{name: r}]}\n" + good, "a", "replicas[0]: address: missing"},
		"v2":                {"targets:\n- {volume: b, engine: 'h:1', backend: longhorn-v2}\n", "", "longhorn-v1 only"},
		"unknown field":     {"targets:\n- {volume: b, enigne: 'h:1'}\n", "", "enigne"},
		"no YAML":           {"targets: [", "", "targets file"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "targets.yaml")
			write(t, path, test.text)
			targets, err := readTargets(path)
			var volumes []string
			for _, target := range targets {
				volumes = append(volumes, target.Volume)
			}
			if got := strings.Join(volumes, ","); got != test.volumes {
				t.Errorf("volumes %q, want %q", got, test.volumes)
			}
			switch {
			case test.err == "" && err != nil:
				t.Error(err)
			case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err) || !strings.Contains(err.Error(), path)):
				t.Errorf("error %v, want one that names %s and has %q", err, path, test.err)
			}
		})
	}
}

// A changed file changes what is polled; a broken or missing one changes nothing but a counter.
func TestTargetsFileIsFollowed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "targets.yaml")
	var log bytes.Buffer
	fleet := NewFleet(FleetOptions{Log: slog.New(slog.DiscardHandler), Poll: quick})
	t.Cleanup(func() { fleet.Set(t.Context(), nil) })
	source := NewFileSource(path, slog.New(slog.NewTextHandler(&log, nil)))
	for i, step := range []struct {
		text    string // "-" removes the file
		volumes int
		errors  uint64
	}{
		{"targets: [{volume: a, engine: '127.0.0.1:1'}, {volume: b, engine: '127.0.0.1:1'}]", 2, 0},
		{"targets: [{volume: a, engine: '127.0.0.1:1'}]", 1, 0},
		{"targets: [", 1, 1},
		{"-", 1, 2},
		{"targets: [{volume: a, engine: '127.0.0.1:1'}, {volume: b}, {volume: c, engine: '127.0.0.1:1'}]", 2, 3},
		{"targets: []", 0, 3},
	} {
		if step.text == "-" {
			os.Remove(path)
		} else {
			write(t, path, step.text)
			// Two changes within the clock's grain look the same by their time.
			at := time.Unix(int64(1000+i), 0)
			if err := os.Chtimes(path, at, at); err != nil {
				t.Fatal(err)
			}
		}
		source.read(t.Context(), fleet)
		if got := len(fleet.list()); got != step.volumes {
			t.Errorf("step %d: %d volumes, want %d", i, got, step.volumes)
		}
		if got := fleet.targetErrors(); got != step.errors {
			t.Errorf("step %d: %d errors, want %d", i, got, step.errors)
		}
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
