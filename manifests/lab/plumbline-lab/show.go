package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/table"
)

// view is the table of a running lab.
type view struct {
	lab        *config.Lab
	prometheus *table.Prometheus
	spec       *table.Spec
	tables     []table.Table
	classes    []string
}

func newView(lab *config.Lab) (*view, error) {
	spec, err := table.ReadSpec(filepath.Join(lab.Files, "table.yaml"))
	if err != nil {
		return nil, err
	}
	p, err := table.NewPrometheus(lab.URL("prometheus"))
	if err != nil {
		return nil, err
	}
	v := &view{lab: lab, prometheus: p, spec: spec, tables: table.Without(spec.Tables, lab.Without)}
	for _, c := range lab.Classes {
		v.classes = append(v.classes, c.Name)
	}
	return v, nil
}

// live shows the tables as of now, over their own window.
func (v *view) live(ctx context.Context, w io.Writer) error {
	return v.print(ctx, w, table.Live(v.tables), time.Duration(v.spec.Window))
}

// summary shows all columns over a longer window.
func (v *view) summary(ctx context.Context, w io.Writer, window time.Duration) error {
	return v.print(ctx, w, v.tables, window)
}

func (v *view) print(ctx context.Context, w io.Writer, tables []table.Table, window time.Duration) error {
	for i, t := range tables {
		values, err := v.prometheus.Fill(ctx, t, window)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(w)
		}
		table.Print(w, t, values, v.classes)
	}
	return nil
}

// awaitFull waits until the load is steady and every cell of the table has a number.
func (v *view) awaitFull(ctx context.Context, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for {
		missing, err := v.missing(ctx)
		if err == nil && len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("no data within %s: %s %w; see %s/logs", wait, strings.Join(missing, ", "), errors.Join(err, ctx.Err()), v.lab.Dir)
		case <-tick.C:
		}
	}
}

// missing names what the table still waits for.
func (v *view) missing(ctx context.Context) ([]string, error) {
	window := time.Duration(v.spec.Window)
	steady, err := v.prometheus.Steady(ctx, v.spec.Steady, window, v.classes)
	if err != nil {
		return nil, err
	}
	if !steady {
		return []string{"a steady load"}, nil
	}
	var missing []string
	for _, t := range v.tables {
		values, err := v.prometheus.Fill(ctx, t, window)
		if err != nil {
			return nil, err
		}
		missing = append(missing, table.Missing(t, values, v.classes)...)
	}
	return missing, nil
}

// showStatus prints the processes that are not well, the addresses and the table.
func showStatus(ctx context.Context, o options) error {
	lab, err := running(o)
	if err != nil {
		return err
	}
	processes, err := newSupervisor(lab.Dir).processes(ctx)
	if err != nil {
		return fmt.Errorf("%w; the lab was killed: clean up with `make lab-down`", err)
	}
	well := 0
	for _, p := range processes {
		if p.up() {
			well++
			continue
		}
		fmt.Printf("%s: %s, exit code %d; log: %s/logs/%s.log\n", p.Name, p.Status, p.ExitCode, lab.Dir, p.Name)
	}
	fmt.Printf("%d of %d processes are up; logs in %s/logs\n", well, len(processes), lab.Dir)
	fmt.Println("Prometheus   ", lab.URL("prometheus"))
	fmt.Println("Alertmanager ", lab.URL("alertmanager"))
	if lab.GrafanaServer != "" {
		fmt.Println("Grafana      ", lab.URL("grafana"))
	}
	for _, c := range lab.Classes {
		fmt.Printf("psql to %-13s psql -h %s -U postgres\n", c.Name, c.SocketDirectory())
	}
	v, err := newView(lab)
	if err != nil {
		return err
	}
	fmt.Println()
	return v.live(ctx, os.Stdout)
}
