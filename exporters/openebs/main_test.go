package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/openebs/collector"
)

// A command line that cannot work ends with one sentence that names the reason.
func TestCommandLine(t *testing.T) {
	all := map[string]bool{"mayastor": true, "localpv": true}
	for name, test := range map[string]struct {
		opts       collector.Options
		kubernetes bool
		kubeconfig string
		err        string
	}{
		"nothing":       {collector.Options{Interval: time.Second, Timeout: time.Second}, false, "", "nothing to observe"},
		"no interval":   {collector.Options{Timeout: time.Second}, false, "", "must be above 0"},
		"no URL":        {collector.Options{Interval: time.Second, Timeout: time.Second, Mayastor: "mayastor"}, false, "", "address of Mayastor's REST API"},
		"no kubeconfig": {collector.Options{Interval: time.Second, Timeout: time.Second}, true, "/nowhere", "/nowhere"},
		"nobody there":  {collector.Options{Interval: time.Second, Timeout: time.Second, Mayastor: "http://127.0.0.1:1"}, false, "", "1 of the checks failed"},
	} {
		t.Run(name, func(t *testing.T) {
			app := exporterkit.New("openebs_exporter", "Test.", "127.0.0.1:0")
			test.opts.Log = slog.New(slog.DiscardHandler)
			err := run(app, test.opts, all, test.kubernetes, test.kubeconfig, true)
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, want one with %q", err, test.err)
			}
		})
	}
}
