package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/gluster/collector"
)

// A command line that cannot work ends with one sentence that names the reason.
func TestCommandLine(t *testing.T) {
	for name, test := range map[string]struct {
		cli      collector.CLI
		interval time.Duration
		err      string
	}{
		"no interval": {collector.CLI{Command: "gluster", Timeout: time.Second}, 0, "must be above 0"},
		"no timeout":  {collector.CLI{Command: "gluster"}, time.Second, "must be above 0"},
		"no program":  {collector.CLI{Command: "no-such-gluster", Timeout: time.Second}, time.Second, "1 of the checks failed"},
	} {
		t.Run(name, func(t *testing.T) {
			app := exporterkit.New("gluster_exporter", "Test.", "127.0.0.1:0")
			err := run(app, collector.Options{Log: slog.New(slog.DiscardHandler), CLI: test.cli, Interval: test.interval}, true)
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want one with %q", err, test.err)
			}
		})
	}
}
