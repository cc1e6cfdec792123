package dashboards

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
)

// states is a band over time for each series, whose values are numbers of states.
type states struct{ names []state }

type state struct {
	value        int
	name, colour string
}

// mappings map each state to its name and colour.
func mappings(names []state) []dashboard.ValueMapping {
	options := map[string]dashboard.ValueMappingResult{}
	for i, one := range names {
		options[strconv.Itoa(one.value)] = dashboard.ValueMappingResult{
			Text: cog.ToPtr(one.name), Color: cog.ToPtr(one.colour), Index: cog.ToPtr(int32(i)),
		}
	}
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options}}}
}

// absent is the state of what is not there at all.
const absent = -1

// orAbsent gives a query one series that explains why there is no other: Grafana shows a panel's own text for no data
// in place of graphs and tables, but not in place of states.
func orAbsent(q query, why string) query {
	return query{
		expr:   q.expr + fmt.Sprintf("\nor on ()\n  label_replace(vector(%d), \"absent\", %q, \"\", \"\")", absent, why),
		legend: q.legend + " {{absent}}",
	}
}

func (s states) build(p panel) cog.Builder[dashboard.Panel] {
	if p.empty != "" {
		s.names = append(slices.Clone(s.names), state{absent, p.empty, grey})
		for i := range p.queries {
			p.queries[i] = orAbsent(p.queries[i], p.empty)
		}
	}
	return statetimeline.NewPanelBuilder().
		Title(p.title).Description(p.description()).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		Targets(targets(p.queries)).
		Unit(p.unit).NoValue(p.noValue()).
		Mappings(mappings(s.names)).
		// Not by thresholds: of a number Grafana would then show the threshold's range and not the
		// mapping's text.
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdFixed).FixedColor(grey)).
		MergeValues(true).ShowValue(common.VisibilityModeAuto).RowHeight(0.8).FillOpacity(80).LineWidth(0).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom))
}
