package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/why"
)

// status reports what measures, what fires, and each storage class in a sentence.
func (c *cluster) status(ctx context.Context, w io.Writer, printer *why.Printer) error {
	return c.give(ctx, w, printer, (*cluster).queryStatus)
}

// noServer is what there is to report without any class.
const noServer = "no database server with a known volume is measured"

// classes calls each with the finding of each storage class' slowest server, or with why there is none.
func (c *cluster) classes(ctx context.Context, api why.API, at time.Time, each func(class string, f *why.Finding, unknown error)) error {
	classes, err := why.Classes(ctx, api, at)
	if err != nil {
		return err
	}
	for _, class := range classes {
		f, err := why.Find(ctx, api, why.Subject{Class: class}, at, c.o.window)
		if err != nil && !errors.Is(err, why.ErrUnknown) {
			return err
		}
		each(class, f, err)
	}
	return nil
}

func (c *cluster) queryStatus(ctx context.Context) (*reply, error) {
	prometheus, api, err := c.oneCluster(ctx)
	if err != nil {
		return nil, err
	}
	now := c.now()
	d := &answer.Status{Head: c.head(answer.KindStatus, now), Classes: []answer.Class{}}
	if d.Agents, err = c.measuring(ctx, api); err != nil {
		return nil, err
	}
	if d.Alerts, err = c.firing(ctx, prometheus); err != nil {
		return nil, err
	}
	var findings []*why.Finding
	err = c.classes(ctx, api, now, func(class string, f *why.Finding, unknown error) {
		one := answer.Class{StorageClass: class}
		if f != nil {
			finding := answer.NewFinding(f)
			findings, one.Finding = append(findings, f), &finding
		} else {
			one.Unknown = why.Line(unknown)
		}
		d.Classes = append(d.Classes, one)
	})
	if err != nil {
		return nil, err
	}
	write := func(w io.Writer, printer *why.Printer, bars bool) {
		printAgents(w, d.Agents)
		printAlerts(w, d.Alerts, now)
		fmt.Fprintln(w)
		if len(d.Classes) == 0 {
			fmt.Fprintln(w, noServer)
			return
		}
		fmt.Fprintf(w, "Where commits' time goes, means of the last %s:\n", why.Span(c.o.window))
		if bars {
			printer.Stacks(findings)
		}
		printer.Words(findings...)
		for _, one := range d.Classes {
			if one.Unknown != "" {
				fmt.Fprintf(w, "- %s\n", one.Unknown)
			}
		}
	}
	return &reply{document: d, words: func(w io.Writer) { write(w, why.PlainPrinter(w), false) },
		text: func(w io.Writer, printer *why.Printer) error { write(w, printer, true); return nil }}, nil
}

// measuring returns the nodes on which the agent is reporting, and those on which it is not, if kubectl's cluster is
// the one that Prometheus has.
func (c *cluster) measuring(ctx context.Context, api why.API) (a answer.Agents, err error) {
	heard, err := why.Nodes(ctx, api, c.now())
	if err != nil {
		return a, err
	}
	a.Heard = append([]string{}, heard...)
	nodes, err := c.nodes(ctx)
	switch {
	case err != nil && ctx.Err() != nil:
		return a, err
	case err != nil:
		// Prometheus knows all else.
		a.Unknown = "Which nodes there are is unknown: " + why.Line(err)
		return a, nil
	case len(a.Heard) > 0 && !slices.ContainsFunc(nodes, func(n node) bool { return slices.Contains(a.Heard, n.Metadata.Name) }):
		a.Unknown = "None is of kubectl's cluster, so that those from which it does not are unknown. --context chooses another cluster."
		return a, nil
	}
	a.Silent, a.LinuxNodes = []string{}, new(int)
	for _, n := range nodes {
		if verdict, _ := n.judge(); verdict == skipped {
			continue // no agent is started there
		}
		if *a.LinuxNodes++; !slices.Contains(a.Heard, n.Metadata.Name) {
			a.Silent = append(a.Silent, why.Clean(n.Metadata.Name))
		}
	}
	slices.Sort(a.Silent)
	return a, nil
}

func printAgents(w io.Writer, a answer.Agents) {
	if a.Unknown != "" {
		fmt.Fprintf(w, "Nodes from which the agent reports: %d. %s\n", len(a.Heard), a.Unknown)
		return
	}
	fmt.Fprintf(w, "The agent reports from %d of %d Linux nodes.\n", *a.LinuxNodes-len(a.Silent), *a.LinuxNodes)
	if len(a.Silent) > 0 {
		fmt.Fprintf(w, "Missing: %s. See `kubectl plumbline check`, and %s\n", some(a.Silent), why.Pods)
	}
}

// some joins names, the first few of many.
func some(names []string) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// queryAlerts lists Plumbline's alerts alone. That they are not known is an error then.
func (c *cluster) queryAlerts(ctx context.Context) (*reply, error) {
	prometheus, _, err := c.oneCluster(ctx)
	if err != nil {
		return nil, err
	}
	now := c.now()
	d := &answer.AlertList{Head: c.head(answer.KindAlerts, now)}
	if d.Alerts, err = c.firing(ctx, prometheus); err != nil {
		return nil, err
	}
	if d.Alerts.Unknown != "" {
		return nil, errors.New(d.Alerts.Unknown)
	}
	return &reply{document: d, words: func(w io.Writer) { printAlerts(w, d.Alerts, now) }}, nil
}

// firing lists Plumbline's alerts.
func (c *cluster) firing(ctx context.Context, p promv1.API) (all answer.Alerts, err error) {
	found, err := p.Alerts(ctx)
	if err != nil && ctx.Err() != nil {
		return all, fmt.Errorf("reading alerts from Prometheus: %w", err)
	}
	if err != nil {
		// A store need not have rules of its own, as where vmalert or a ruler evaluates them.
		all.Unknown = "Which alerts fire is not known: " + why.Line(err)
		return all, nil
	}
	all.Firing = []answer.Alert{}
	for _, a := range found.Alerts {
		if c.ours(a.Labels) && a.State == promv1.AlertStateFiring && a.Labels["severity"] != "info" && a.Labels["part_of"] == "plumbline" {
			all.Firing = append(all.Firing, newAlert(a))
		}
	}
	slices.SortFunc(all.Firing, func(a, b answer.Alert) int { // of each severity, the newest first
		began := func(a answer.Alert) time.Time { return *cmp.Or(a.Since, &time.Time{}) }
		return cmp.Or(strings.Compare(a.Severity, b.Severity), began(b).Compare(began(a)), strings.Compare(a.Name, b.Name), strings.Compare(a.Summary, b.Summary))
	})
	return all, nil
}

func newAlert(a promv1.Alert) answer.Alert {
	of := func(label model.LabelName) string { return why.Clean(string(a.Labels[label])) }
	alert := answer.Alert{Name: of("alertname"), Severity: of("severity"), Cluster: of("cluster"), Node: of("node"), Server: of("server"), Volume: of("volume"),
		StorageClass: of("storageclass"), Replica: of("replica"), Device: of("device"),
		Summary: why.Clean(string(a.Annotations["summary"])), RunbookURL: why.Clean(string(a.Annotations["runbook_url"]))}
	if !a.ActiveAt.IsZero() {
		since := a.ActiveAt.UTC()
		alert.Since = &since
	}
	return alert
}

func printAlerts(w io.Writer, all answer.Alerts, now time.Time) {
	switch {
	case all.Unknown != "":
		fmt.Fprintln(w, all.Unknown)
		return
	case len(all.Firing) == 0:
		fmt.Fprintln(w, "No alert of Plumbline fires.")
		return
	}
	fmt.Fprintln(w, "Firing:")
	shown := map[string]bool{"": true}
	for _, a := range all.Firing {
		name := a.Name
		if a.Since != nil {
			name += fmt.Sprintf(" (%s)", max(0, now.Sub(*a.Since)).Truncate(time.Second))
		}
		if key := a.Severity + a.Name + a.Summary; !shown[key] {
			fmt.Fprintf(w, "  %-8s %s: %s\n", a.Severity, name, a.Summary)
			shown[key] = true
		}
		if !shown[a.RunbookURL] {
			fmt.Fprintf(w, "           %s\n", a.RunbookURL)
			shown[a.RunbookURL] = true
		}
	}
}
