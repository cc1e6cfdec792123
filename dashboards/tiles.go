package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
)

// tile is a panel that is there once for each value of a variable, with a few named values
// below each other. Its title is the variable's value.
type tile struct {
	variable string
	// values describe the queries' values, in the queries' order.
	values []tileValue
	links  []link
}

// tileValue is a value with a unit and limits, or a state.
type tileValue struct {
	unit   string
	limit  *limit
	states []state
}

// tilesPerRow is how many tiles are beside each other at most.
const tilesPerRow = 4

func (t tile) build(p panel) cog.Builder[dashboard.Panel] {
	b := stat.NewPanelBuilder().
		Title(p.title).Description(p.description()).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		Repeat(t.variable).RepeatDirection(dashboard.PanelRepeatDirectionH).MaxPerRow(tilesPerRow).
		Unit(p.unit).NoValue(p.noValue()).
		ColorMode(common.BigValueColorModeValue).GraphMode(common.BigValueGraphModeNone).
		Orientation(common.VizOrientationHorizontal).TextMode(common.BigValueTextModeValueAndName).JustifyMode(common.BigValueJustifyModeAuto).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds)).
		Thresholds((*limit)(nil).thresholds()).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
	for i, q := range p.queries {
		b.WithTarget(instantSeries(q, refID(i)))
		v := t.values[i]
		properties := []dashboard.DynamicConfigValue{{Id: "unit", Value: v.unit}}
		if v.states != nil {
			properties = append(properties,
				dashboard.DynamicConfigValue{Id: "mappings", Value: mappings(v.states)},
				dashboard.DynamicConfigValue{Id: "color", Value: map[string]any{"mode": "fixed", "fixedColor": grey}})
		} else {
			steps, err := v.limit.thresholds().Build()
			if err != nil {
				return failed{err}
			}
			properties = append(properties, dashboard.DynamicConfigValue{Id: "thresholds", Value: steps})
		}
		b.OverrideByQuery(refID(i), properties)
	}
	if len(t.links) > 0 {
		b.DataLinks(linkBuilders(t.links, ""))
	}
	return b
}
