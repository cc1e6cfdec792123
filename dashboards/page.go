// Package dashboards builds Plumbline's Grafana dashboards and reads the committed JSON back
// for the tests. The JSON is the classic ("v1") model that Grafana 10 to 13 load from a file
// and that the sidecar of kube-prometheus-stack loads from a ConfigMap.
//
// The model is Grafana's own grafana-foundation-sdk, which is made from Grafana's schema: what
// it accepts, Grafana accepts. The types here are a thin layer above it, so that a dashboard
// reads as a list of titles, queries and what to think of them.
package dashboards

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/plumbline/plumbline/rules/histograms"
)

// schemaVersion is that of Grafana 10.4; later ones migrate it when they load it.
const schemaVersion = 39

// tag is on every dashboard; the links in their heads go by it.
const tag = "plumbline"

// columns is the width of Grafana's grid.
const columns = 24

// page is one dashboard.
type page struct {
	uid, title, text string
	// variables are those beside the data source and the cluster.
	variables []variable
	rows      []row
}

// row is a headed group of panels.
type row struct {
	title  string
	panels []panel
	// closed rows are for what not everybody runs: their panels run no query until they are opened.
	closed bool
}

// panel is what every kind of panel has; view is its kind.
type panel struct {
	title string
	// question is the question of the operator that the panel answers.
	question string
	// text describes what the panel shows, what good looks like and what to do when it is not.
	text string
	// empty is the panel's text when there is nothing to show: "none" where that is good, or the reason.
	empty         string
	width, height uint32
	unit          string
	queries       []query
	view          view
	// clusterLabel is the label that distinguishes clusters; it is set when the panel is built.
	clusterLabel string
}

// description is what the i in the panel's corner shows.
func (p panel) description() string { return p.question + " " + p.text }

// NoReason is what a panel shows that has nothing to show and should have: where exporters are scraped, it is a fault.
const NoReason = "no data: check that its exporter is scraped"

// NoReasonListed is the same of a panel of single volumes or servers.
const NoReasonListed = NoReason + notListed

// notListed is why such a panel may be empty where all is well.
const notListed = "; of a class of over 100 volumes choose a namespace"

// noValue is what the panel shows instead of nothing.
func (p panel) noValue() string {
	text := cmp.Or(p.empty, NoReason)
	if _, rows := p.view.(states); !rows && p.ofSingle() { // a row's name has no room
		text += notListed
	}
	return text
}

// ofSingle reports whether a panel shows nothing but single volumes or servers.
func (p panel) ofSingle() bool {
	text := ""
	for _, q := range p.queries {
		text += q.expr
	}
	return ofListedUse.MatchString(text) && !strings.Contains(text, "chosen=~")
}

// ofListedUse is a use of a variable that has the listed volumes or servers only.
var ofListedUse = regexp.MustCompile(`\$(volume|device|listed_server)"`)

// query is one expression of a panel and the name of its series.
type query struct{ expr, legend string }

// nowWindow is the window of what is called "now": the shortest one that has four samples where
// scrapes come every 30 s. It does not grow when a longer time is shown, as Grafana's own would.
const nowWindow = "2m"

// view is a kind of panel.
type view interface {
	build(p panel) cog.Builder[dashboard.Panel]
}

// pages are all dashboards, in the order of their links.
func pages() []page {
	return []page{overview(), queryToDisk(), replicas(), volumes(), databases(), queries(), load(), plumbline()}
}

// Options are what can be chosen when the dashboards are made.
type Options struct {
	// ClusterLabel is the label that distinguishes clusters; empty means ClusterLabel.
	ClusterLabel string
	// Histograms are those that panels read; empty is either kind.
	Histograms histograms.Kind
}

func (o Options) histograms() histograms.Kind { return cmp.Or(o.Histograms, histograms.Either) }

func (o Options) clusterLabel() string {
	if o.ClusterLabel == "" {
		return ClusterLabel
	}
	return o.ClusterLabel
}

// Files returns the JSON of every dashboard by its file name.
func Files(o Options) (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, p := range pages() {
		board, err := p.build(o)
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", p.uid, err)
		}
		events, err := annotations(o)
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", p.uid, err)
		}
		text, err := format(file{board, annotationList{events}})
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", p.uid, err)
		}
		files[p.uid+".json"] = text
	}
	return files, nil
}

func (p page) build(o Options) (dashboard.Dashboard, error) {
	variables, err := p.allVariables(o)
	if err != nil {
		return dashboard.Dashboard{}, err
	}
	b := dashboard.NewDashboardBuilder(p.title).
		Uid(p.uid).
		Description(p.text).
		Tags([]string{tag}).
		Timezone("browser").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Time("now-1h", "now").
		Refresh("30s").
		Variables(variables).
		Links(pageLinks())
	for _, r := range p.rows {
		head := dashboard.NewRowBuilder(r.title).Collapsed(r.closed)
		var built []cog.Builder[dashboard.Panel]
		for _, one := range r.panels {
			if one, err = one.perCluster(o); err != nil {
				return dashboard.Dashboard{}, fmt.Errorf("panel %q: %w", one.title, err)
			}
			built = append(built, one.view.build(one))
			if r.closed {
				head.WithPanel(built[len(built)-1])
			}
		}
		b.WithRow(head)
		for _, one := range built {
			if !r.closed {
				b.WithPanel(one)
			}
		}
	}
	board, err := b.Build()
	if err != nil {
		return board, err
	}
	board.SchemaVersion = schemaVersion
	board.Id = nil
	setIDs(board.Panels)
	dropDefaults(&board)
	return board, nil
}

// perCluster returns the panel with its queries made for the variable cluster. A series' name
// ends with its cluster's, if it has one.
func (p panel) perCluster(o Options) (panel, error) {
	label := o.clusterLabel()
	queries := make([]query, len(p.queries))
	for i, q := range p.queries {
		expr, has, err := perCluster(q.expr, o)
		if err != nil {
			return p, err
		}
		if has && strings.Contains(q.legend, "{{") {
			q.legend += " {{" + label + "}}"
		}
		queries[i] = query{expr, q.legend}
	}
	p.queries, p.clusterLabel = queries, label
	return p, nil
}

// dropDefaults takes out what the SDK puts in unasked: a place for links that is a closed
// menu from Grafana 13 on, and settings of variables that Grafana 10 does not know.
func dropDefaults(board *dashboard.Dashboard) {
	for i := range board.Links {
		board.Links[i].Placement = nil
	}
	for i := range board.Templating.List {
		v := &board.Templating.List[i]
		v.Auto, v.AutoMin, v.AutoCount, v.AllowCustomValue = nil, nil, nil, nil
	}
}

// setIDs gives every panel its id: its place on the dashboard.
func setIDs(panels []dashboard.PanelOrRowPanel) {
	id := uint32(0)
	next := func() *uint32 { id++; one := id; return &one }
	for i := range panels {
		if panels[i].Panel != nil {
			panels[i].Panel.Id = next()
			continue
		}
		panels[i].RowPanel.Id = *next()
		for j := range panels[i].RowPanel.Panels {
			panels[i].RowPanel.Panels[j].Id = next()
		}
	}
}
