package dashboards

import (
	"maps"
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// targets are a panel's queries over time, named A, B, C…
func targets(queries []query) []cog.Builder[variants.Dataquery] {
	var all []cog.Builder[variants.Dataquery]
	for i, q := range queries {
		all = append(all, prometheus.NewDataqueryBuilder().
			RefId(string(rune('A'+i))).Datasource(prometheusSource()).
			Expr(q.expr).LegendFormat(q.legend).Range())
	}
	return all
}

// graph is lines over time. The legend is a table with values, so that colour alone never
// tells two series apart.
type graph struct {
	// stacked adds the series up.
	stacked bool
	// log is for values that differ by powers of ten.
	log bool
	// limit is drawn as lines.
	limit *limit
	// colours are fixed ones, by a series' name.
	colours map[string]string
	// links lead from a series to another dashboard.
	links []link
	// max is the axis' end, if it has one, such as 1 of a share.
	max float64
	// every is the least time between two points, for means over such a time whose
	// expression joins every volume there is.
	every string
	// signed is for values that may be below 0.
	signed bool
}

func (g graph) build(p panel) cog.Builder[dashboard.Panel] {
	b := timeseries.NewPanelBuilder().
		Title(p.title).Description(p.text).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		Targets(targets(p.queries)).
		Unit(p.unit).
		LineWidth(1).FillOpacity(0).ShowPoints(common.VisibilityModeNever).
		SpanNulls(common.BoolOrFloat64{Bool: cog.ToPtr(false)}).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdPaletteClassic)).
		Thresholds(g.limit.thresholds()).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeTable).
			Placement(common.LegendPlacementBottom).Calcs([]string{"mean", "max", "lastNotNull"}).SortBy("Mean").SortDesc(true))
	if g.stacked {
		b.Stacking(common.NewStackingConfigBuilder().Group("A").Mode(common.StackingModeNormal)).FillOpacity(60)
	}
	if g.log {
		b.ScaleDistribution(common.NewScaleDistributionConfigBuilder().Type(common.ScaleDistributionLog).Log(10))
	}
	if g.limit != nil {
		b.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	if g.every != "" {
		b.Interval(g.every)
	}
	if g.max > 0 {
		b.Max(g.max)
	}
	// An axis by powers of ten cannot begin at 0.
	if !g.signed && !g.log {
		b.Min(0)
	}
	for _, name := range slices.Sorted(maps.Keys(g.colours)) {
		b.OverrideByName(name, []dashboard.DynamicConfigValue{fixedColour(g.colours[name])})
	}
	if len(g.links) > 0 {
		b.DataLinks(linkBuilders(g.links, "__field.labels"))
	}
	return b
}

// number is the last value, large, with its course behind it.
type number struct{ limit *limit }

func (n number) build(p panel) cog.Builder[dashboard.Panel] {
	return stat.NewPanelBuilder().
		Title(p.title).Description(p.text).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		Targets(targets(p.queries)).
		Unit(p.unit).NoValue("no data").
		ColorMode(common.BigValueColorModeValue).GraphMode(common.BigValueGraphModeArea).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds)).
		Thresholds(n.limit.thresholds()).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
}
