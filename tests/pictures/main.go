// Command pictures opens every dashboard in a real Grafana over a recorded Prometheus in which something happens, and
// fails on what a person would call broken: an error, a number that is none, text that is cut off, a panel that is
// empty without a reason. It leaves a picture of each.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/tests/pictures/inspect"
	"github.com/plumbline/plumbline/tests/pictures/scenario"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

type options struct {
	grafana, out, dashboards   string
	dashboard, scenario, theme *regexp.Regexp
	deadline                   time.Duration
}

func main() {
	app := kingpin.New("pictures", "Inspects the dashboards in a real Grafana, over scenarios: "+strings.Join(scenario.Names(), ", ")+".\n\n"+
		"Pictures (PNG) and findings.json go to a folder; it fails if there is a finding. It needs Chromium and build/bin/prometheus. Examples:\n"+
		"  pictures --grafana=/usr/share/grafana\n  pictures --scenario=slow-replica --dashboard='overview|replicas' --theme=dark --out=/tmp/pictures")
	app.HelpFlag.Short('h')
	var o options
	app.Flag("grafana", "Grafana's home folder: with bin, conf and public.").Envar("GRAFANA_HOME").StringVar(&o.grafana)
	app.Flag("out", "Where the pictures go.").Default("build/pictures").StringVar(&o.out)
	app.Flag("dashboards", "The folder of dashboards.").Default("dashboards").ExistingDirVar(&o.dashboards)
	app.Flag("dashboard", "Only dashboards whose uid matches.").Default(".").RegexpVar(&o.dashboard)
	app.Flag("scenario", "Only scenarios whose name matches.").Default(".").RegexpVar(&o.scenario)
	app.Flag("theme", "Only themes that match: dark, light.").Default(".").RegexpVar(&o.theme)
	app.Flag("deadline", "How long a page may take to load.").Default("3m").DurationVar(&o.deadline)
	kingpin.MustParse(app.Parse(os.Args[1:]))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := rig.Run(func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }, func(t *rig.Scope) { run(ctx, t, o) })
	stop()
	if err != nil {
		os.Exit(1)
	}
}

// found is a finding with its page.
type found struct {
	Scenario  string `json:"scenario"`
	Dashboard string `json:"dashboard"`
	Theme     string `json:"theme"`
	Width     int    `json:"width"`
	inspect.Finding
	Do      string `json:"do"`
	Picture string `json:"picture"`
}

func run(ctx context.Context, t *rig.Scope, o options) {
	_, err := findGrafana(o.grafana)
	t.Check(err)
	_, err = inspect.Program()
	t.Check(err)
	home, err := filepath.Abs(o.grafana)
	t.Check(err)
	t.Check(os.MkdirAll(o.out, 0o755))
	folder, err := os.MkdirTemp("/var/tmp", "plumbline-pictures-")
	t.Check(err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })

	browser, stop, err := inspect.Start(ctx, filepath.Join(folder, "browser"), dashboards.NoReason, dashboards.NoReasonListed)
	t.Check(err)
	t.Cleanup(stop)
	all := []found{}
	for _, name := range scenario.Names() {
		if !o.scenario.MatchString(name) {
			continue
		}
		s, err := scenario.Load(name)
		t.Check(err)
		t.Logf("%s: %s", name, s.Text)
		recorded, err := s.Record(ctx, testkit.Root())
		t.Check(err)
		prometheus := startPrometheus(ctx, t, filepath.Join(folder, name, "prometheus"), recorded)
		grafana := startGrafana(ctx, t, filepath.Join(folder, name, "grafana"), home, o.dashboards, prometheus)
		for _, uid := range uids(t, o.dashboards) {
			if o.dashboard.MatchString(uid) {
				all = append(all, inspectPage(t, o, browser, grafana, name, uid)...)
			}
		}
	}
	data, err := json.MarshalIndent(all, "", "  ")
	t.Check(err)
	t.Check(os.WriteFile(filepath.Join(o.out, "findings.json"), append(data, '\n'), 0o644))
	for _, line := range summary(all) {
		t.Errorf("%s", line)
	}
	if !t.Failed() {
		t.Logf("nothing is wrong; the pictures are in %s", o.out)
	}
}

// view is how every dashboard is shown; the overview also on a telephone, and its first screen alone.
type view struct {
	inspect.View
	suffix string
}

func viewsOf(uid string) []view {
	views := []view{{inspect.View{Width: 1280}, ""}}
	if strings.HasSuffix(uid, "-overview") {
		views = append(views, view{inspect.View{Width: 390}, "-390"}, view{inspect.View{Width: 1280, Height: 790}, "-first"})
	}
	return views
}

// tablet is the least width at which a table must fit.
const tablet = 768

func inspectPage(t *rig.Scope, o options, browser *inspect.Browser, grafana, scenario, uid string) (all []found) {
	for _, theme := range []string{"dark", "light"} {
		if !o.theme.MatchString(theme) {
			continue
		}
		for _, v := range viewsOf(uid) {
			findings, picture, err := browser.Open(pageURL(grafana, uid, theme), v.View, o.deadline)
			if err != nil {
				t.Errorf("%s, %s, %s: %v", scenario, uid, theme, err)
				continue
			}
			file := fmt.Sprintf("%s-%s-%s%s.png", scenario, strings.TrimPrefix(uid, "plumbline-"), theme, v.suffix)
			t.Check(os.WriteFile(filepath.Join(o.out, file), picture, 0o644))
			for _, f := range findings {
				if f.What == "outside" && v.Width < tablet {
					continue // a telephone's tables are moved by a finger
				}
				all = append(all, found{scenario, uid, theme, v.Width, f, inspect.Remedies[f.What], file})
			}
		}
	}
	return all
}

// pageURL is a dashboard at the end of a scenario.
func pageURL(grafana, uid, theme string) string {
	return fmt.Sprintf("http://%s/d/%s?orgId=1&from=%d&to=%d&refresh=&theme=%s", grafana, uid, scenario.End.Add(-scenario.Shown).UnixMilli(), scenario.End.UnixMilli(), theme)
}

// summary names each thing that is wrong once, with the pages that have it.
func summary(all []found) []string {
	pages := map[string][]string{}
	var order []string
	for _, f := range all {
		panel := "the page"
		if f.Panel != "" {
			panel = fmt.Sprintf("panel %q", f.Panel)
		}
		line := fmt.Sprintf("%s, %s: %s: %q; %s", f.Dashboard, panel, f.What, f.Text, f.Do)
		if pages[line] == nil {
			order = append(order, line)
		}
		if page := fmt.Sprintf("%s %s %d", f.Scenario, f.Theme, f.Width); !slices.Contains(pages[line], page) {
			pages[line] = append(pages[line], page)
		}
	}
	for i, line := range order {
		order[i] = line + " (" + strings.Join(pages[line], ", ") + ")"
	}
	return order
}
