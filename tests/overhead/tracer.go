package main

import (
	"context"
	_ "embed"
	"fmt"
	"time"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/rig"
)

// script measures with bpftrace what the agent measures: the time of each query, of each
// block request and of each read, write and sync call.
//
//go:embed trace.bt
var script string

// modes are what the load runs with: nothing, the node agent, blockio in ebpf_exporter, these two,
// and bpftrace with a script that measures the same.
var modes = []string{"none", "agent", "blockio", "all", "bpftrace"}

// observe starts a mode's observers until the scope's end, and returns once they are attached.
func (o options) observe(ctx context.Context, t *rig.Scope, mode string, s server) {
	if mode == "agent" || mode == "all" {
		a, err := agentproc.Start(ctx, o.agent, o.agentFlags...)
		t.Check(err)
		t.Cleanup(func() { t.Check(a.Stop()) })
	}
	if mode == "blockio" || mode == "all" {
		url, _ := rig.StartBlockio(t)
		rig.Eventually(t, time.Minute, func() error {
			m, err := agentproc.Scrape(ctx, url)
			if err == nil && m.Sum("ebpf_exporter_enabled_configs") == 0 {
				err = fmt.Errorf("ebpf_exporter has no program attached")
			}
			return err
		})
	}
	if mode == "bpftrace" {
		b := rig.StartBpftrace(t, o.bpftrace, script, map[string]string{"SERVER": s.program})
		t.Cleanup(func() { b.Stop() })
	}
}
