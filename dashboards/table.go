package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/table"
)

// grid is a table of the values now: one row for each set of labels that all queries share,
// and one column for each query, titled by the query's legend.
type grid struct {
	// labels are the label columns, in their order; others are left out.
	labels []labelColumn
	// columns say what the queries' columns are, in the queries' order.
	columns []valueColumn
	// sort is the title of the column to sort by, the largest first.
	sort string
}

// labelColumn is a column of a label's values, with links from its cells.
type labelColumn struct {
	label, title string
	links        []link
}

type valueColumn struct {
	unit  string
	limit *limit
}

func (g grid) build(p panel) cog.Builder[dashboard.Panel] {
	b := table.NewPanelBuilder().
		Title(p.title).Description(p.text).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		Unit(p.unit).
		CellHeight(common.TableCellHeightSm).
		// The schema wants a list, even of a footer that is not shown.
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{})).
		Thresholds((*limit)(nil).thresholds())
	index := map[string]any{}
	for i, l := range g.labels {
		index[l.label] = i
		// The title is an override: links find a field by its own name, which must stay.
		properties := []dashboard.DynamicConfigValue{{Id: "displayName", Value: l.title}}
		if len(l.links) > 0 {
			properties = append(properties, dashboard.DynamicConfigValue{Id: "links", Value: cellLinks(l.links)})
		}
		b.OverrideByName(l.label, properties)
	}
	for i, q := range p.queries {
		ref := string(rune('A' + i))
		b.WithTarget(prometheus.NewDataqueryBuilder().RefId(ref).Datasource(prometheusSource()).
			Expr(q.expr).LegendFormat(q.legend).Format(prometheus.PromQueryFormatTable).Instant())
		properties, err := g.columns[i].properties(q.legend)
		if err != nil {
			return failed{err}
		}
		names := []string{"Value #" + ref}
		if len(p.queries) == 1 {
			names = append(names, "Value") // so Grafana calls an only one
		}
		for _, name := range names {
			index[name] = len(g.labels) + i
			b.OverrideByName(name, properties)
		}
	}
	if g.sort != "" {
		b.SortBy([]cog.Builder[common.TableSortByFieldState]{common.NewTableSortByFieldStateBuilder().DisplayName(g.sort).Desc(true)})
	}
	return b.
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]any{"Time": true}, "indexByName": index, "renameByName": map[string]any{},
		}})
}

func (c valueColumn) properties(title string) ([]dashboard.DynamicConfigValue, error) {
	properties := []dashboard.DynamicConfigValue{{Id: "displayName", Value: title}, {Id: "unit", Value: c.unit}}
	if c.limit == nil {
		return properties, nil
	}
	steps, err := c.limit.thresholds().Build()
	return append(properties,
		dashboard.DynamicConfigValue{Id: "thresholds", Value: steps},
		dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]any{"type": "color-text"}},
	), err
}

// failed is a panel that could not be built.
type failed struct{ err error }

func (f failed) Build() (dashboard.Panel, error) { return dashboard.Panel{}, f.err }

// cellLinks writes the links of a table's cell.
func cellLinks(links []link) []map[string]any {
	var all []map[string]any
	for _, l := range links {
		all = append(all, map[string]any{"title": l.title, "url": l.url("__data.fields")})
	}
	return all
}

func linkBuilders(links []link, source string) []cog.Builder[dashboard.DashboardLink] {
	var all []cog.Builder[dashboard.DashboardLink]
	for _, l := range links {
		all = append(all, l.builder(source))
	}
	return all
}
