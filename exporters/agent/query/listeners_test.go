package query

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// onlyUnknownListeners exports no more than those.
type onlyUnknownListeners struct {
	collector.Collector
	*unknownListeners
}

func (o onlyUnknownListeners) Update(ch chan<- prometheus.Metric) error {
	o.send(ch, "here")
	return nil
}

// Programs that listen on a database's port and are unknown are exported by the engine whose port it is, logged once
// and at debug only, and named by --check, no more than some of them.
func TestUnknownListenersExported(t *testing.T) {
	proc := t.TempDir()
	const programs = maxUnknownListenersNamed + 3
	for i := range programs {
		pid := fmt.Sprint(100 + i)
		dir := filepath.Join(proc, pid)
		table := fmt.Sprintf("  sl  local_address rem_address   st\n   0: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 %d 1\n", 7000+i)
		if i == 0 {
			table += "   1: 0100007F:18EB zz:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1\n"
			table += "   2: zz:18EB 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 2 1\n"
		}
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "ns"), 0o755), os.Mkdir(filepath.Join(dir, "net"), 0o755), os.Mkdir(filepath.Join(dir, "fd"), 0o755),
			os.Symlink("net:["+pid+"]", filepath.Join(dir, "ns", "net")), os.Symlink(fmt.Sprintf("socket:[%d]", 7000+i), filepath.Join(dir, "fd", "3")),
			os.WriteFile(filepath.Join(dir, "net", "tcp"), []byte(strings.Replace(table, "st\n", "st tx tr ret uid time inode\n", 1)), 0o644),
			os.WriteFile(filepath.Join(dir, "stat"), []byte(pid+" (a) mystery) S 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 100 0 0\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	s := newUnknownListeners(server.NewScanner(proc, untrusted.NewCalls(time.Hour, untrusted.DefaultHanging)))
	var logged bytes.Buffer
	debug := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	for range 2 {
		s.scan(debug, namespacesAtStart)
	}
	if n := strings.Count(logged.String(), "level=DEBUG"); n != programs+1 || strings.Count(logged.String(), "\n") != n {
		t.Errorf("%d lines are logged, want one for each of %d ports:\n%s", n, programs+1, logged.String())
	}
	out := onlyUnknownListeners{unknownListeners: s}
	for reason, want := range map[string]float64{"postgresql": programs, "mysql": 0, "redis": 1, collector.ReasonNamespace: 0} {
		if got := collectortest.UnidentifiedValue(t, out, collector.KindListener, reason); got != want {
			t.Errorf("%v listeners are exported of %s, want %v", got, reason, want)
		}
	}
	if got := collectortest.UnidentifiedValue(t, out, collector.KindLine, collector.ReasonTCP); got != 1 {
		t.Errorf("%v tables are exported that are not understood, want 1", got)
	}
	check := s.check()
	if check.Err == nil || !check.Optional {
		t.Fatalf("--check has %+v", check)
	}
	text := check.Err.Error()
	if strings.Count(text, " listens on port ") != maxUnknownListenersNamed || !strings.HasPrefix(text, "process 100 (a) mystery) listens on port 5432 of postgresql; ") || !strings.HasSuffix(text, "; and 4 more") {
		t.Errorf("--check has %q", text)
	}
}
