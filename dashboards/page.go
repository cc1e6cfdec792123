// Package dashboards builds Plumbline's Grafana dashboards and reads the committed JSON back
// for the tests. The JSON is the classic ("v1") model that Grafana 10 to 13 load from a file
// and that the sidecar of kube-prometheus-stack loads from a ConfigMap.
//
// The model is Grafana's own grafana-foundation-sdk, which is made from Grafana's schema: what
// it accepts, Grafana accepts. The types here are a thin layer above it, so that a dashboard
// reads as a list of titles, queries and what to think of them.
package dashboards

import (
	"encoding/json"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// schemaVersion is that of Grafana 10.4; later ones migrate it when they load it.
const schemaVersion = 39

// columns is the width of Grafana's grid.
const columns = 24

// page is one dashboard.
type page struct {
	uid, title, text string
	variables        []cog.Builder[dashboard.VariableModel]
	rows             []row
}

// row is a headed group of panels.
type row struct {
	title  string
	panels []panel
}

// panel is what every kind of panel has; view is its kind.
type panel struct {
	title string
	// text says what the panel shows, what good looks like and what to do when it is not.
	text          string
	width, height uint32
	unit          string
	queries       []query
	view          view
}

// query is one expression of a panel and the name of its series.
type query struct{ expr, legend string }

// view is a kind of panel.
type view interface {
	build(p panel) cog.Builder[dashboard.Panel]
}

// pages are all dashboards, in the order of their links.
func pages() []page {
	return []page{overview(), queryToDisk(), replicas(), volumes(), databases(), load(), plumbline()}
}

// Files returns the JSON of every dashboard by its file name.
func Files() (map[string][]byte, error) {
	files := map[string][]byte{}
	for _, p := range pages() {
		board, err := p.build()
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", p.uid, err)
		}
		text, err := json.MarshalIndent(file{board, annotationList{annotations()}}, "", "  ")
		if err != nil {
			return nil, fmt.Errorf("dashboard %s: %w", p.uid, err)
		}
		files[p.uid+".json"] = append(text, '\n')
	}
	return files, nil
}

func (p page) build() (dashboard.Dashboard, error) {
	b := dashboard.NewDashboardBuilder(p.title).
		Uid(p.uid).
		Description(p.text).
		Tags([]string{"plumbline"}).
		Timezone("browser").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Time("now-1h", "now").
		Refresh("30s").
		Variables(p.variables).
		Links(pageLinks(p.uid))
	for _, r := range p.rows {
		b.WithRow(dashboard.NewRowBuilder(r.title))
		for _, one := range r.panels {
			b.WithPanel(one.view.build(one))
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
	for i := range panels {
		id := uint32(i + 1)
		if panels[i].Panel != nil {
			panels[i].Panel.Id = &id
		} else {
			panels[i].RowPanel.Id = id
		}
	}
}
