package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/barchart"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// bars is one horizontal bar for each value of a label, made of the queries' values now in the
// queries' order. A query's legend is the name of its part.
type bars struct {
	label string
	// colours are those of the parts, by their names.
	colours map[string]string
	links   []link
}

func (v bars) build(p panel) cog.Builder[dashboard.Panel] {
	b := barchart.NewPanelBuilder().
		Title(p.title).Description(p.description()).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		Unit(p.unit).NoValue(p.noValue()).
		Orientation(common.VizOrientationHorizontal).Stacking(common.StackingModeNormal).
		ShowValue(common.VisibilityModeNever).BarWidth(0.7).GroupWidth(0.7).FillOpacity(85).LineWidth(0).
		XTickLabelMaxLength(28).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdPaletteClassic)).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti)).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom))
	// The bars' names are the first column of text; a cluster's comes after it.
	index := map[string]any{v.label: 0}
	for i, q := range p.queries {
		b.WithTarget(instant(q, refID(i)))
		properties := []dashboard.DynamicConfigValue{{Id: "displayName", Value: q.legend}, fixedColour(v.colours[q.legend])}
		names := valueNames(i, len(p.queries))
		if i == 0 && len(p.queries) > 1 {
			// When everything is stalled, only the first part has values, see statementBars: Grafana then omits its
			// number.
			names = append(names, "Value")
		}
		for _, name := range names {
			index[name] = 1 + i
			b.OverrideByName(name, properties)
		}
	}
	if len(v.links) > 0 {
		b.DataLinks(linkBuilders(v.links, "__data.fields"))
	}
	for _, t := range merged(index) {
		b.WithTransformation(t)
	}
	return b
}
