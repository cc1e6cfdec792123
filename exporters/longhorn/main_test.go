package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/longhorn/collector"
)

// A command line that cannot work ends with one sentence that names the reason.
func TestCommandLine(t *testing.T) {
	poll := collector.Poll{EngineInterval: time.Second, StateInterval: time.Second, Timeout: time.Second}
	all := map[string]bool{"engine": true, "replica": true, "volume": true, "node": true}
	for name, test := range map[string]struct {
		poll    collector.Poll
		cluster kubernetes
		targets string
		on      map[string]bool
		err     string
	}{
		"nothing":        {poll, kubernetes{}, "", all, "either --targets-file or --kubernetes"},
		"both":           {poll, kubernetes{on: true}, "x", all, "either --targets-file or --kubernetes"},
		"no interval":    {collector.Poll{}, kubernetes{}, "x", all, "must be above 0"},
		"node alone":     {poll, kubernetes{node: "a"}, "x", all, "mean nothing without --kubernetes"},
		"no kubeconfig":  {poll, kubernetes{on: true, config: "/nowhere"}, "", all, "/nowhere"},
		"no certificate": {poll, kubernetes{tlsDir: "/nowhere"}, "x", all, "/nowhere/tls.crt"},
		"only cluster's": {poll, kubernetes{}, "x", map[string]bool{"volume": true}, "no collector"},
	} {
		t.Run(name, func(t *testing.T) {
			app := exporterkit.New("longhorn_exporter", "Test.", "127.0.0.1:0")
			err := run(app, collector.Options{Log: slog.New(slog.DiscardHandler)}, test.poll, test.cluster, test.targets, test.on, true)
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want one with %q", err, test.err)
			}
		})
	}
}
