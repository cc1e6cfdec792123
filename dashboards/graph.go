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

// refID is a query's name within its panel: A, B, C…
func refID(i int) string { return string(rune('A' + i)) }

// dashes are the lines of a graph's second, third and further query, in pixels.
var dashes = [][]int{{10, 6}, {2, 4}, {14, 4, 2, 4}}

// targets are a panel's queries over time, named A, B, C…
func targets(queries []query) []cog.Builder[variants.Dataquery] {
	var all []cog.Builder[variants.Dataquery]
	for i, q := range queries {
		all = append(all, prometheus.NewDataqueryBuilder().
			RefId(refID(i)).Datasource(prometheusSource()).
			Expr(q.expr).LegendFormat(q.legend).Range())
	}
	return all
}

// instantSeries is a query for the values now, as one series each.
func instantSeries(q query, ref string) cog.Builder[variants.Dataquery] {
	return prometheus.NewDataqueryBuilder().RefId(ref).Datasource(prometheusSource()).
		Expr(q.expr).LegendFormat(q.legend).Instant()
}

// graph is lines over time. The legend is a table with values, so that series never differ by colour alone.
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
	// soft is the axis' end as long as no value is above it, so that zeros do not make an axis to
	// 100; 0 is one that fits the unit and the limit.
	soft float64
	// every is the least time between two points, for targets that are scraped less often than others.
	every string
	// signed is for values that may be below 0.
	signed bool
}

func (g graph) build(p panel) cog.Builder[dashboard.Panel] {
	b := timeseries.NewPanelBuilder().
		Title(p.title).Description(p.description()).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		Targets(targets(p.queries)).
		Unit(p.unit).NoValue(p.noValue()).
		LineWidth(1).FillOpacity(0).ShowPoints(common.VisibilityModeNever).
		SpanNulls(common.BoolOrFloat64{Bool: cog.ToPtr(false)}).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdPaletteClassic)).
		Thresholds(g.limit.thresholds()).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeTable).
			Placement(common.LegendPlacementBottom).Calcs(legendValues(p)).SortBy("Max").SortDesc(true))
	if g.stacked {
		b.Stacking(common.NewStackingConfigBuilder().Group("A").Mode(common.StackingModeNormal)).FillOpacity(60)
	}
	if g.log {
		b.ScaleDistribution(common.NewScaleDistributionConfigBuilder().Type(common.ScaleDistributionLog).Log(10))
		// Of such an axis most lines have no number, and Grafana would write a series' text for nothing beside
		// each; the panel's own stays.
		b.OverrideByRegexp("/.*/", []dashboard.DynamicConfigValue{{Id: "noValue", Value: ""}})
	}
	if g.limit != nil {
		b.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	if g.every != "" {
		b.Interval(g.every)
	}
	if g.max > 0 {
		b.Max(g.max)
	} else if soft := g.softMax(p.unit); soft > 0 {
		b.AxisSoftMax(soft)
	}
	// An axis by powers of ten cannot begin at 0.
	if !g.signed && !g.log {
		b.Min(0)
	}
	for _, name := range slices.Sorted(maps.Keys(g.colours)) {
		b.OverrideByName(name, []dashboard.DynamicConfigValue{fixedColour(g.colours[name])})
	}
	// Where the series' names, and so their colours, are unknown, a query's lines differ from the others' by their
	// dashes.
	for i := range p.queries {
		if len(g.colours) == 0 && i > 0 {
			dash := map[string]any{"fill": "dash", "dash": dashes[min(i, len(dashes))-1]}
			b.OverrideByQuery(refID(i), []dashboard.DynamicConfigValue{{Id: "custom.lineStyle", Value: dash}})
		}
	}
	if len(g.links) > 0 {
		b.DataLinks(linkBuilders(g.links, "__field.labels"))
	}
	return b
}

// legendValues are the numbers beside a series' name, the one that legends sort by first. A narrow panel has room for
// that alone, and so has a less narrow one of rates, whose numbers are long.
func legendValues(p panel) []string {
	if p.width < 8 || p.width == 8 && p.unit == perSec {
		return []string{"max"}
	}
	return []string{"max", "lastNotNull"}
}

// softMax is where the axis ends at least.
func (g graph) softMax(unit string) float64 {
	switch {
	case g.soft > 0:
		return g.soft
	case g.log:
		return 0
	case unit == ratio:
		return 1
	case (unit == perSec || unit == count || unit == times) && g.limit != nil:
		return max(g.limit.warn, g.limit.bad)
	case unit == perSec || unit == count || unit == times:
		return 1
	case unit == seconds && g.limit != nil:
		return g.limit.warn
	case unit == seconds:
		return 0.001
	}
	return 0
}

// number is the last value, large, with its course behind it.
type number struct{ limit *limit }

func (n number) build(p panel) cog.Builder[dashboard.Panel] {
	return stat.NewPanelBuilder().
		Title(p.title).Description(p.description()).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		Targets(targets(p.queries)).
		Unit(p.unit).NoValue(p.noValue()).
		ColorMode(common.BigValueColorModeValue).GraphMode(common.BigValueGraphModeArea).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds)).
		Thresholds(n.limit.thresholds()).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
}
