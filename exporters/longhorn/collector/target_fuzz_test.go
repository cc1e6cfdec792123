package collector

import (
	"os"
	"path/filepath"
	"testing"
)

// Of a targets file only complete targets are taken, each volume once.
func FuzzTargets(f *testing.F) {
	f.Add([]byte("targets:\n  - volume: v\n    engine: 127.0.0.1:9501\n    replicas: [{name: r, address: 127.0.0.1:10000, directory: /r}]\n"))
	f.Add([]byte("targets:\n  - {volume: v, engine: 'h:1'}\n  - {volume: v, engine: 'h:1'}\n"))
	f.Add([]byte("targets: [{volume: v, engine: '::::', backend: x}]"))
	f.Add([]byte("targets: {a: b}"))
	path := filepath.Join(f.TempDir(), "targets.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		targets, _ := readTargets(path) // errors are reported, valid targets are used
		seen := map[string]bool{}
		for _, one := range targets {
			if seen[one.Volume] {
				t.Errorf("volume %q twice", one.Volume)
			}
			seen[one.Volume] = true
			if err := one.complete(); err != nil {
				t.Errorf("accepted, but %v", err)
			}
		}
	})
}
