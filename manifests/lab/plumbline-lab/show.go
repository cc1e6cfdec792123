package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/supervise"
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
	return v.print(ctx, w, table.Live(v.tables), v.lab.LiveTable())
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
	// Each refresh is a query for each cell: on a slow machine, which has a longer interval, they would hold up what
	// they wait for.
	tick := time.NewTicker(max(500*time.Millisecond, time.Duration(v.lab.Interval)/4))
	defer tick.Stop()
	for reported := time.Now(); ; {
		missing, err := v.missing(ctx)
		if err == nil && len(missing) == 0 {
			return nil
		}
		if time.Since(reported) >= reportInterval {
			reported = time.Now()
			fmt.Println("still waiting for", awaited(missing, err))
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

// awaited names some of what is missing.
func awaited(missing []string, err error) string {
	const some = 3
	switch {
	case err != nil:
		return fmt.Sprintf("an answer of Prometheus (%v)", err)
	case len(missing) > some:
		return fmt.Sprintf("%s and %d more", strings.Join(missing[:some], ", "), len(missing)-some)
	}
	return strings.Join(missing, ", ")
}

// missing names what the table still waits for.
func (v *view) missing(ctx context.Context) ([]string, error) {
	window := v.lab.LiveTable()
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

// showProcesses prints the state of the processes: which do not run, which were restarted, how often and why, and where
// their logs are.
func showProcesses(ctx context.Context, lab *config.Lab, w io.Writer) error {
	processes, err := supervise.At(lab.Dir).Processes(ctx)
	if err != nil {
		return fmt.Errorf("%w; the lab was killed: clean up with `make lab-down`", err)
	}
	up := 0
	for _, p := range processes {
		if p.Up() {
			up++
		}
		if line := p.Describe(lab.Dir); line != "" {
			fmt.Fprintln(w, line)
		}
	}
	fmt.Fprintf(w, "%d of %d processes are up; logs in %s/logs\n", up, len(processes), lab.Dir)
	return nil
}

// showStatus prints the processes, the addresses that show something, and where the time goes.
func showStatus(ctx context.Context, o options, wide bool) error {
	lab, err := running(o)
	if err != nil {
		return err
	}
	if err := showProcesses(ctx, lab, os.Stdout); err != nil {
		return err
	}
	for _, server := range []string{"grafana", "alertmanager", "prometheus"} {
		if url := lab.URL(server); showsPage(ctx, url) {
			fmt.Printf("%-21s %s\n", server, url)
		}
	}
	fmt.Printf("%-21s curl -s '%s/api/v1/query?query=up'\n", "Prometheus' API", lab.URL("prometheus"))
	for _, c := range lab.Classes {
		fmt.Printf("psql to %-13s psql -h %s -U postgres\n", c.Name, c.SocketDirectory())
	}
	fmt.Println()
	if wide {
		v, err := newView(lab)
		if err != nil {
			return err
		}
		if err := v.live(ctx, os.Stdout); err != nil {
			return err
		}
		fmt.Println()
	}
	r, err := newReporter(lab)
	if err != nil {
		return err
	}
	_, err = r.show(ctx, lab.Live())
	return err
}

// showsPage reports whether a server has a web page: the Prometheus and the Alertmanager that are built here only from
// source have none.
func showsPage(ctx context.Context, url string) bool {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	defer answer.Body.Close()
	return answer.StatusCode == http.StatusOK && strings.HasPrefix(answer.Header.Get("Content-Type"), "text/html")
}
