package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/loadgen/report"
	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/damage"
	"github.com/plumbline/plumbline/rules/why"
)

// demoOptions are the demo's own.
type demoOptions struct {
	duration, every time.Duration
	// wide shows tables instead of bars.
	wide bool
	// kind is a way to break the lab, page a file for the report; "" for none.
	kind, page string
}

// runDemo starts a lab, shows for a while where the time goes, and removes the lab.
func runDemo(ctx context.Context, o options, d demoOptions) (err error) {
	begin := time.Now()
	lab, err := startLab(ctx, o)
	if err != nil {
		return endOf(ctx, o, err)
	}
	defer func() {
		if err != nil && ctx.Err() == nil {
			err = withEndings(o.dir, err)
		}
		err = errors.Join(err, removeLab(o.dir))
	}()
	fmt.Printf("everything runs after %.0f s; waiting for a steady load\n", time.Since(begin).Seconds())
	demo, err := newDemo(lab, d)
	if err != nil {
		return err
	}
	if err := demo.view.awaitFull(ctx, o.wait); err != nil {
		return interrupted(ctx, err)
	}
	fmt.Printf("first figures after %.0f s\n", time.Since(begin).Seconds())
	demo.began = time.Now()
	if err := demo.run(ctx); err != nil {
		return interrupted(ctx, err)
	}
	fmt.Println()
	if err := showProcesses(ctx, lab, os.Stdout); err != nil {
		return err
	}
	return demo.writePage(ctx)
}

// demo is a demo under way.
type demo struct {
	demoOptions
	lab       *config.Lab
	view      *view
	reporter  *reporter
	began     time.Time
	snapshots []snapshot
	marks     []report.Mark
}

func newDemo(lab *config.Lab, d demoOptions) (*demo, error) {
	v, err := newView(lab)
	if err != nil {
		return nil, err
	}
	r, err := newReporter(lab)
	return &demo{demoOptions: d, lab: lab, view: v, reporter: r}, err
}

// settled is how long something must last until all of a live window is in it.
func (d *demo) settled() time.Duration { return d.lab.Live() + 5*time.Second }

// run shows the lab as it is, or before, while and after it is broken.
func (d *demo) run(ctx context.Context) error {
	if d.kind == "" {
		if err := d.watch(ctx, d.duration); err != nil {
			return err
		}
		window := max(d.duration, d.lab.Live())
		return d.report(ctx, "The last "+window.String(), window)
	}
	if err := d.watch(ctx, d.settled()); err != nil {
		return err
	}
	if err := d.report(ctx, "Before anything is broken", d.lab.Live()); err != nil {
		return err
	}
	if err := d.breakIt(ctx); err != nil {
		return err
	}
	if err := d.watch(ctx, d.settled()); err != nil {
		return err
	}
	return d.report(ctx, "After it was healed", d.lab.Live())
}

// breakIt breaks the lab for the demo's duration and reports on it just before the end.
func (d *demo) breakIt(ctx context.Context) (err error) {
	from := time.Now()
	broken, err := damage.Begin(ctx, d.lab, d.kind, "")
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, broken.Heal())
		d.marks = append(d.marks, report.Mark{Kind: "fault", Name: "break " + d.kind, From: from, To: time.Now(), Detail: broken.What})
		if err == nil {
			fmt.Println("\nhealed")
		}
	}()
	fmt.Printf("\nBreaking it on purpose for %s: %s\n", d.duration, broken.What)
	if err := d.watch(ctx, d.duration); err != nil {
		return err
	}
	// Not of the time before it was broken, nor of the change.
	return d.report(ctx, "While it was broken: "+broken.What, max(d.duration-10*time.Second, 10*time.Second).Truncate(time.Second))
}

// watch shows the live figures for a while.
func (d *demo) watch(ctx context.Context, duration time.Duration) error {
	end := time.After(duration)
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-end:
			return nil
		case <-tick.C:
		}
		fmt.Println("\n" + time.Now().Format(time.TimeOnly))
		var err error
		if d.wide {
			err = d.view.live(ctx, os.Stdout)
		} else {
			err = d.reporter.live(ctx)
		}
		if err != nil {
			return err
		}
	}
}

// report reports on a window that has just ended, and keeps it for the page.
func (d *demo) report(ctx context.Context, title string, window time.Duration) error {
	fmt.Printf("\n%s\n", title)
	if d.wide {
		if err := d.view.summary(ctx, os.Stdout, window); err != nil {
			return err
		}
		fmt.Println()
	}
	findings, err := d.reporter.show(ctx, window)
	d.snapshots = append(d.snapshots, snapshot{title, findings})
	return err
}

// layers are the page's plots over a window, which is short, as a demo is.
func layers(window time.Duration) []report.Layer {
	past := "[" + model.Duration(window).String() + "]"
	const volume = " * on (node, device) group_left (storageclass) group by (node, device, storageclass) (plumbline_volume_info))"
	const ofVolume = " * on (volume) group_left (storageclass) group by (volume, storageclass) (plumbline_volume_info))"
	return []report.Layer{
		{Name: "commit", Query: `avg by (storageclass) (histogram_avg(sum by (node, server) (rate(plumbline_query_duration_seconds{command="commit"}` + past + `))) * on (node, server) group_left (storageclass) group by (node, server, storageclass) (server:volume:info))`},
		{Name: "block write", Query: `avg by (storageclass) (histogram_avg(sum by (node, device) (rate(ebpf_exporter_blkio_total_seconds{op="write"}` + past + `)))` + volume},
		{Name: "engine write", Query: `avg by (storageclass) (histogram_avg(sum by (volume) (rate(plumbline_volume_frontend_seconds{op="write"}` + past + `)))` + ofVolume},
		{Name: "slowest replica", Query: `avg by (storageclass) (max by (volume) (histogram_avg(sum by (volume, address) (rate(plumbline_replica_request_duration_seconds{op="write"}` + past + `))))` + ofVolume},
		{Name: "fastest replica", Query: `avg by (storageclass) (min by (volume) (histogram_avg(sum by (volume, address) (rate(plumbline_replica_request_duration_seconds{op="write"}` + past + `))))` + ofVolume},
	}
}

// writePage writes the demo's page and prints where it is.
func (d *demo) writePage(ctx context.Context) error {
	if d.page == "" {
		return nil
	}
	path := d.page
	if !filepath.IsAbs(path) {
		path = filepath.Join(d.lab.Repo, path)
	}
	r := &report.Report{Title: "Plumbline's demo: where a commit's time goes", Began: d.began, Last: time.Now(), Done: 1, Marks: d.marks}
	for _, l := range d.snapshots {
		s := report.Section{Title: l.title}
		for _, f := range l.findings {
			s.Findings = append(s.Findings, report.NewFinding(f))
		}
		r.Sections = append(r.Sections, s)
	}
	r.AddPrometheus(ctx, d.lab.URL("prometheus"), layers(d.lab.Live()))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := errors.Join(r.WriteHTML(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fmt.Printf("the same as a page, with plots over time: %s\n", path)
	return nil
}

// interrupted returns one short line for err if the user ended the demo.
func interrupted(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.New("interrupted; cleaning up")
	}
	return err
}

// endOf removes what a failed start has left, but never a lab that was there before.
func endOf(ctx context.Context, o options, err error) error {
	if errors.Is(err, errStarted) {
		return errors.Join(interrupted(ctx, err), removeLab(o.dir))
	}
	return err
}

// snapshot is what was found at one time of a demo.
type snapshot struct {
	title    string
	findings []*why.Finding
}
