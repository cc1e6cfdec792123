package soak

import (
	"os"
	"path/filepath"
	"testing"
)

// A plan that is accepted is one that its own check accepts.
func FuzzPlan(f *testing.F) {
	f.Add([]byte("duration: 1h\ntargets:\n  - {storageclass: local, dsn: host=/run/local}\n"))
	f.Add([]byte("duration: 1h\nfaults:\n  - {name: a, at: 5m, for: 1m, do: [\"true\"]}\ntargets:\n  - {storageclass: local, dsn: x}\n"))
	f.Add([]byte("duration: -1s\ninterval: 0s\ncanary: {rate: .nan}\n"))
	path := filepath.Join(f.TempDir(), "plan.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := ReadPlan(path, 0)
		if err != nil {
			return
		}
		if err := p.check(t.TempDir()); err != nil {
			t.Errorf("accepted, but %v", err)
		}
		if p.Duration <= 0 || p.Interval <= 0 {
			t.Errorf("accepted with duration %v and interval %v", p.Duration, p.Interval)
		}
	})
}
