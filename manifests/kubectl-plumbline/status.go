package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/plumbline/plumbline/rules/why"
)

// status says what measures, what fires, and each storage class in a sentence.
func (c *cluster) status(ctx context.Context, w io.Writer, pen *why.Pen) error {
	prometheus, err := c.findPrometheus(ctx)
	if err != nil {
		return err
	}
	api, err := c.oneCluster(ctx, prometheus)
	if err != nil {
		return err
	}
	if err := c.measuring(ctx, w, api); err != nil {
		return err
	}
	if err := c.firing(ctx, w, prometheus); err != nil {
		return err
	}
	classes, err := why.Classes(ctx, api, c.now())
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	if len(classes) == 0 {
		fmt.Fprintln(w, "no database server with a known volume is measured")
		return nil
	}
	fmt.Fprintf(w, "Where commits' time goes, means of %s:\n", c.o.window)
	var findings []*why.Finding
	for _, class := range classes {
		f, err := why.Find(ctx, api, why.Subject{Class: class}, c.now(), c.o.window)
		if errors.Is(err, why.ErrUnknown) {
			continue
		}
		if err != nil {
			return err
		}
		findings = append(findings, f)
	}
	pen.Stacks(findings)
	pen.Words(findings...)
	return nil
}

// measuring says on which nodes the agent is heard of, and on which it is not, if kubectl's cluster is the one that Prometheus tells of.
func (c *cluster) measuring(ctx context.Context, w io.Writer, api why.API) error {
	heard, err := why.Nodes(ctx, api, c.now())
	if err != nil {
		return err
	}
	nodes, err := c.nodes(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return err
	case err != nil:
		// Prometheus knows all else.
		fmt.Fprintf(w, "Nodes on which the agent is heard of: %d. Nodes unknown, and so those on which it is not: %s\n", len(heard), why.Line(err))
		return nil
	case len(heard) > 0 && !slices.ContainsFunc(nodes, func(n node) bool { return slices.Contains(heard, n.Metadata.Name) }):
		fmt.Fprintf(w, "Nodes on which the agent is heard of: %d, none of kubectl's cluster, so that those on which it is not are unknown. --context chooses another cluster.\n", len(heard))
		return nil
	}
	var silent []string
	linux := 0
	for _, n := range nodes {
		if verdict, _ := n.judge(); verdict == skipped {
			continue // no agent is started there
		}
		if linux++; !slices.Contains(heard, n.Metadata.Name) {
			silent = append(silent, why.Clean(n.Metadata.Name))
		}
	}
	fmt.Fprintf(w, "The agent is heard of on %d of %d Linux nodes.\n", linux-len(silent), linux)
	if len(silent) > 0 {
		slices.Sort(silent)
		fmt.Fprintf(w, "Not on %s: see `kubectl plumbline check`, and %s\n", some(silent), why.Pods)
	}
	return nil
}

// some joins names, the first few of many.
func some(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// firing lists Plumbline's alerts.
func (c *cluster) firing(ctx context.Context, w io.Writer, p promv1.API) error {
	answer, err := p.Alerts(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("asking Prometheus for alerts: %w", err)
	}
	if err != nil {
		// A store need not have rules of its own, as where vmalert or a ruler evaluates them.
		fmt.Fprintf(w, "Which alerts fire is not known: %s\n", why.Line(err))
		return nil
	}
	var lines []string
	for _, a := range answer.Alerts {
		if !c.ours(a.Labels) {
			continue
		}
		if a.State != promv1.AlertStateFiring || a.Labels["severity"] == "info" || a.Labels["part_of"] != "plumbline" {
			continue
		}
		line := fmt.Sprintf("  %-8s %s: %s", why.Clean(string(a.Labels["severity"])), why.Clean(string(a.Labels["alertname"])), why.Clean(string(a.Annotations["summary"])))
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	if len(lines) == 0 {
		fmt.Fprintln(w, "No alert of Plumbline fires.")
		return nil
	}
	fmt.Fprintln(w, "Firing:")
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
	return nil
}
