package main

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"time"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/rig"
)

// script measures with bpftrace what the agent measures: the time of each query, of each
// block request and of each read, write and sync call.
//
//go:embed trace.bt
var script string

// modes are what the load runs with: nothing, the node agent, the agent that also follows single statements (its
// collector trace), blockio in ebpf_exporter, agent and blockio, and bpftrace with a script that measures the same.
var modes = []string{"none", "agent", "statements", "blockio", "all", "bpftrace"}

// observe starts a mode's observers until the scope's end, and returns once they are attached.
func (o options) observe(ctx context.Context, t *rig.Scope, mode string, s server) {
	if mode == "agent" || mode == "statements" || mode == "all" {
		flags := slices.Clone(o.agentFlags)
		if mode == "statements" {
			flags = append(flags, "--collector.trace")
		}
		a, err := agentproc.Start(ctx, o.agent, flags...)
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
