package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
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
	// columns describe the queries' columns, in the queries' order.
	columns []valueColumn
	// lead is how many label columns come before the values: what the rows are of. With one value it is 0, so that the
	// value is seen first on any screen.
	lead int
	// sort is the title of the column to sort by, the largest first.
	sort string
}

// labelColumn is a column of a label's values, with links from its cells.
type labelColumn struct {
	label, title string
	// width is its least width in pixels. Longer values are cut off, and shown under the pointer.
	width int
	links []link
}

type valueColumn struct {
	unit  string
	limit *limit
}

// clusterTitle is the title of the column with a row's cluster.
const clusterTitle = "Cluster"

// textWidth is about how wide a text of the panels' font is, in pixels.
func textWidth(text string) int { return 8 * len([]rune(text)) }

// valueWidth is the least width of a value's column: of its title with the sign of sorting, or
// of a value such as 0.21 ops/s.
func valueWidth(title string) int { return max(textWidth(title)+28, 84) }

func (g grid) build(p panel) cog.Builder[dashboard.Panel] {
	b := table.NewPanelBuilder().
		Title(p.title).Description(p.description()).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		Unit(p.unit).NoValue(p.noValue()).
		CellHeight(common.TableCellHeightSm).
		// The schema wants a list, even of a footer that is not shown.
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{})).
		Thresholds((*limit)(nil).thresholds())
	index := map[string]any{}
	for i, l := range g.labels {
		index[l.label] = i
		if i >= g.lead {
			index[l.label] = i + len(p.queries)
		}
		// The title is an override: links find a field by its own name, which must stay.
		properties := []dashboard.DynamicConfigValue{{Id: "displayName", Value: l.title}, {Id: "custom.minWidth", Value: l.width}}
		if len(l.links) > 0 {
			properties = append(properties, dashboard.DynamicConfigValue{Id: "links", Value: cellLinks(l.links)})
		}
		b.OverrideByName(l.label, properties)
	}
	for i, q := range p.queries {
		b.WithTarget(instant(q, refID(i)))
		properties, err := g.columns[i].properties(q.legend)
		if err != nil {
			return failed{err}
		}
		for _, name := range valueNames(i, len(p.queries)) {
			index[name] = g.lead + i
			b.OverrideByName(name, properties)
		}
	}
	// Only if clusters are distinguished: the last column, as that one may be outside the view.
	index[p.clusterLabel] = len(g.labels) + len(p.queries)
	b.OverrideByName(p.clusterLabel, []dashboard.DynamicConfigValue{{Id: "displayName", Value: clusterTitle}, {Id: "custom.minWidth", Value: valueWidth(clusterTitle)}})
	if g.sort != "" {
		b.SortBy([]cog.Builder[common.TableSortByFieldState]{common.NewTableSortByFieldStateBuilder().DisplayName(g.sort).Desc(true)})
	}
	for _, t := range merged(index) {
		b.WithTransformation(t)
	}
	return b
}

// instant is a query for the values now, as rows of labels and a value.
func instant(q query, ref string) cog.Builder[variants.Dataquery] {
	return prometheus.NewDataqueryBuilder().RefId(ref).Datasource(prometheusSource()).
		Expr(q.expr).LegendFormat(q.legend).Format(prometheus.PromQueryFormatTable).Instant()
}

// valueNames are Grafana's names of the column of a panel's query.
func valueNames(i, queries int) []string {
	names := []string{"Value #" + refID(i)}
	if queries == 1 {
		names = append(names, "Value") // so Grafana calls an only one
	}
	return names
}

// merged puts the queries' rows of the same labels together, and the columns into the order of
// index.
func merged(index map[string]any) []dashboard.DataTransformerConfig {
	return []dashboard.DataTransformerConfig{
		{Id: "merge", Options: map[string]any{}},
		{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]any{"Time": true}, "indexByName": index, "renameByName": map[string]any{},
		}},
	}
}

func (c valueColumn) properties(title string) ([]dashboard.DynamicConfigValue, error) {
	properties := []dashboard.DynamicConfigValue{{Id: "displayName", Value: title}, {Id: "unit", Value: c.unit}, {Id: "custom.minWidth", Value: valueWidth(title)}}
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
