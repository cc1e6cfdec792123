package try

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// ErrInterrupted means that the measuring was interrupted before there was anything to report.
var ErrInterrupted = errors.New("interrupted before anything was measured")

// ErrRefused means that the API server does not let the user read an exporter.
var ErrRefused = errors.New("reading it is refused")

// scrapeTimeout is how long one scrape of an exporter may take.
const scrapeTimeout = 10 * time.Second

// mostPage is how large an exporter's answer may be, in bytes.
const mostPage = 64 << 20

// Exporter is one that is read.
type Exporter struct {
	// URL is where its metrics are, Client how to get there.
	URL    string
	Client *http.Client
	// Target are its labels; job names it in errors.
	Target map[string]string
}

// Targets returns the labels of the agent and of the block I/O exporter on a node.
func Targets(node string) (agent, blockio map[string]string) {
	of := func(job string) map[string]string {
		return map[string]string{"job": job, "instance": node, "node": node}
	}
	return of("plumbline-agent"), of("plumbline-blockio")
}

// read reads an exporter once.
func (e Exporter) read(ctx context.Context) (p Page) {
	p.Target = e.Target
	defer func() {
		if p.Err != nil {
			p.Err = fmt.Errorf("%s: %w", e.Target["job"], p.Err)
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, scrapeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.URL, nil)
	if err != nil {
		p.Err = err
		return p
	}
	request.Header.Set("Accept", "text/plain;version=0.0.4")
	answer, err := e.Client.Do(request)
	if err != nil {
		p.Err = err
		return p
	}
	defer answer.Body.Close()
	p.Text, p.Err = io.ReadAll(io.LimitReader(answer.Body, mostPage+1))
	switch {
	case p.Err != nil:
	case answer.StatusCode == http.StatusUnauthorized || answer.StatusCode == http.StatusForbidden:
		p.Err = fmt.Errorf("%w: status %s", ErrRefused, answer.Status)
	case answer.StatusCode != http.StatusOK:
		p.Err = fmt.Errorf("status %s: %.500s", answer.Status, p.Text)
	case len(p.Text) > mostPage:
		p.Err = fmt.Errorf("more than %d bytes", mostPage)
	}
	return p
}

// readAll reads all exporters at the same time.
func readAll(ctx context.Context, all []Exporter) []Page {
	pages := make([]Page, len(all))
	done := make(chan int)
	for i, e := range all {
		go func() { pages[i] = e.read(ctx); done <- i }()
	}
	for range all {
		<-done
	}
	return pages
}

// Await returns once all exporters can be read, or with the reason why they cannot, when ctx ends or they never will.
func Await(ctx context.Context, all []Exporter) error {
	retry := time.NewTicker(Interval / 5)
	defer retry.Stop()
	for {
		var errs []error
		for _, p := range readAll(ctx, all) {
			errs = append(errs, p.Err)
		}
		err := errors.Join(errs...)
		if err == nil || errors.Is(err, ErrRefused) {
			return err
		}
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return ErrInterrupted
			}
			return err
		case <-retry.C:
		}
	}
}

// mostJump is how far the wall clock may be from one that is never set, before what is measured ends.
const mostJump = 2 * time.Second

// moment is what a wall clock has, and one that is never set and stops while the machine sleeps.
type moment struct {
	wall    time.Time
	running time.Duration
}

// clocks returns the moment by this machine's clocks, from a start.
func clocks() func() moment {
	start := time.Now()
	return func() moment { return moment{time.Now().Round(0), time.Since(start)} }
}

// Measure reads exporters each second for a time, or until ctx ends, which is no error if there were two scrapes. It
// calls scraped after each scrape, with whether the rules were evaluated.
func (m *Measurement) Measure(ctx context.Context, d time.Duration, all []Exporter, scraped func(evaluated bool)) error {
	next := time.NewTicker(Interval)
	defer next.Stop()
	work := context.WithoutCancel(ctx) // what was measured is evaluated when ctx has ended
	began := m.clock()
	for {
		at := m.clock()
		// What was counted meanwhile is of another time than it seems, if a clock was set, or one of them stopped.
		if jump := at.wall.Sub(began.wall) - (at.running - began.running); jump.Abs() > mostJump && m.Window() > 0 {
			m.note(fmt.Errorf("the clock was set, or this machine slept, by %v: measured until then", jump.Round(time.Second)))
			break
		}
		pages := readAll(ctx, all)
		if ctx.Err() != nil {
			break
		}
		due, err := m.Add(work, began.wall.Add(at.running-began.running), pages...)
		if err != nil {
			m.note(err)
		}
		scraped(due)
		if m.Last.Sub(m.First) >= d {
			break
		}
		select {
		case <-ctx.Done():
		case <-next.C:
		}
	}
	if m.Window() <= 0 {
		return ErrInterrupted
	}
	m.Evaluate(work)
	return nil
}
