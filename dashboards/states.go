package dashboards

import (
	"strconv"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/xychart"
)

// states is a band over time for each series, whose values are numbers of states.
type states struct{ names []state }

type state struct {
	value        int
	name, colour string
}

func (s states) build(p panel) cog.Builder[dashboard.Panel] {
	options := map[string]dashboard.ValueMappingResult{}
	for i, one := range s.names {
		options[strconv.Itoa(one.value)] = dashboard.ValueMappingResult{
			Text: cog.ToPtr(one.name), Color: cog.ToPtr(one.colour), Index: cog.ToPtr(int32(i)),
		}
	}
	return statetimeline.NewPanelBuilder().
		Title(p.title).Description(p.text).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		Targets(targets(p.queries)).
		Unit(p.unit).
		Mappings([]dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options}}}).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdThresholds)).
		Thresholds((*limit)(nil).thresholds()).
		MergeValues(true).ShowValue(common.VisibilityModeAuto).RowHeight(0.8).FillOpacity(80).LineWidth(0).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom))
}

// scatter is one point for each moment: the first query's value across, the others' up.
type scatter struct{ xTitle string }

func (s scatter) build(p panel) cog.Builder[dashboard.Panel] {
	b := xychart.NewPanelBuilder().
		Title(p.title).Description(p.text).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		Targets(targets(p.queries)).
		Unit(p.unit).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdPaletteClassic)).
		Show(xychart.XYShowModePoints).
		PointSize(xychart.NewXychartFieldConfigPointSizeBuilder().Fixed(5)).
		FillOpacity(50).
		// Automatic: the first number goes across, each further one up.
		Mapping(xychart.SeriesMappingAuto).
		Series([]cog.Builder[xychart.XYSeriesConfig]{xychart.NewXYSeriesConfigBuilder()}).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeSingle)).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom)).
		OverrideByName(s.xTitle, []dashboard.DynamicConfigValue{{Id: "custom.axisLabel", Value: s.xTitle}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "joinByField", Options: map[string]any{"byField": "Time", "mode": "inner"}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]any{"Time": true}, "indexByName": map[string]any{}, "renameByName": map[string]any{},
		}})
	return withPluginVersion{b, "11.1.0"}
}

// withPluginVersion says which version of a panel its options are of: Grafana converts a
// chart without one from the options of before 11.1.
type withPluginVersion struct {
	cog.Builder[dashboard.Panel]
	version string
}

func (w withPluginVersion) Build() (dashboard.Panel, error) {
	p, err := w.Builder.Build()
	p.PluginVersion = &w.version
	return p, err
}
