package exporterkit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/exporter-toolkit/web"
	"github.com/prometheus/exporter-toolkit/web/kingpinflag"
)

// shutdownTimeout bounds how long a scrape under way may hold up the end of the process.
const shutdownTimeout = 3 * time.Second

// App is one exporter program: its command line, logger, registry and HTTP server.
type App struct {
	// Name is the program's name, as on the landing page and in build information.
	Name string
	// Description is one sentence for --help and the landing page.
	Description string
	// Registry holds the program's metrics but those of its Sets; the Go runtime's and the process's own are in it.
	Registry *prometheus.Registry
	// Large is set by programs that may have the series of a large cluster, and no native histograms: scrapes that take
	// text get text.
	Large bool
	// Flags is the program's command line; add to it before Parse.
	Flags *kingpin.Application

	log       promslog.Config
	web       *web.FlagConfig
	telemetry *string
	timeout   *time.Duration
	pages     []Page
	sets      []*Set
	observed  *prometheus.Registry // the sets' metrics
}

// Page is what a program serves beside its metrics, with the same access rights.
type Page struct {
	Path string
	// Text is its name on the landing page; empty if it is not there.
	Text    string
	Handler http.Handler
}

// AddPages adds pages, before Serve.
func (a *App) AddPages(pages ...Page) { a.pages = append(a.pages, pages...) }

// New returns an App that listens on address unless --web.listen-address is set. examples are whole command lines shown
// by --help.
func New(name, description, address string, examples ...string) *App {
	help := description
	for i, e := range examples {
		if i == 0 {
			help += "\n\nExamples:"
		}
		help += "\n  " + e
	}
	a := &App{
		Name:        name,
		Description: description,
		Registry:    prometheus.NewRegistry(),
		observed:    prometheus.NewRegistry(),
		Flags:       kingpin.New(name, help),
	}
	a.Flags.HelpFlag.Short('h')
	promslogflag.AddFlags(a.Flags, &a.log)
	a.web = kingpinflag.AddFlags(a.Flags, address)
	a.telemetry = a.Flags.Flag("web.telemetry-path", "Path under which to serve metrics.").Default("/metrics").String()
	a.timeout = a.Flags.Flag("scrape.collector-timeout", "How long a scrape waits for one collector before it answers without it; below Prometheus' scrape_timeout.").
		Default(DefaultTimeout.String()).Duration()
	a.Registry.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	return a
}

// Parse reads the command line and returns the configured logger. A wrong command line ends the process with a hint to
// --help.
func (a *App) Parse(args []string) *slog.Logger {
	_, err := a.Flags.Parse(args)
	if err == nil && *a.timeout <= 0 {
		err = errors.New("--scrape.collector-timeout must be above 0")
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v; try %s --help\n", a.Name, err, a.Name)
		os.Exit(2)
	}
	return promslog.New(&a.log)
}

// NewSet returns an empty Set. The program exposes its series, and scrapes wait for each collector as long as the
// command line allows.
func (a *App) NewSet(log *slog.Logger) *Set {
	timeout := *a.timeout
	if timeout <= 0 {
		timeout = DefaultTimeout // the command line was not read
	}
	set := NewSetWithTimeout(log, timeout)
	a.observed.MustRegister(set)
	a.sets = append(a.sets, set)
	return set
}

// Serve answers scrapes until ctx ends or the process gets SIGINT or SIGTERM.
func (a *App) Serve(ctx context.Context, log *slog.Logger) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()

	links := []web.LandingLinks{{Address: *a.telemetry, Text: "Metrics"}}
	for _, p := range a.pages {
		if p.Text != "" {
			links = append(links, web.LandingLinks{Address: p.Path, Text: p.Text})
		}
	}
	landing, err := web.NewLandingPage(web.LandingConfig{Name: a.Name, Description: a.Description, Links: links})
	if err != nil {
		return fmt.Errorf("landing page: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", landing)
	mux.HandleFunc("/-/healthy", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "healthy")
	})
	mux.Handle(*a.telemetry, a.metrics(log))
	for _, p := range a.pages {
		mux.Handle(p.Path, whole(p.Handler))
	}

	server := newServer(mux)
	done := make(chan error, 1)
	go func() { done <- web.ListenAndServe(server, a.web, log) }()
	select {
	case err := <-done:
		if errors.Is(err, http.ErrServerClosed) {
			return nil
		}
		return fmt.Errorf("listening on %v: %w", *a.web.WebListenAddresses, err)
	case <-ctx.Done():
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		return server.Shutdown(grace)
	}
}
