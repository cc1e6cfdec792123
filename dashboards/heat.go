package dashboards

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// heat is a heat map: how many operations took how long, over time. Its one query is made by
// buckets: series by the label le.
type heat struct{}

func (h heat) build(p panel) cog.Builder[dashboard.Panel] {
	target := prometheus.NewDataqueryBuilder().RefId("A").Datasource(prometheusSource()).
		Expr(p.queries[0].expr).LegendFormat("{{le}}").Range().Format(prometheus.PromQueryFormatHeatmap)
	return heatmap.NewPanelBuilder().
		Title(p.title).Description(p.description()).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		WithTarget(target).NoValue(p.noValue()).
		Calculate(false).
		// ColorBrewer's YlGnBu grows darker steadily: it reads without any sense of colour.
		Color(heatmap.NewHeatmapColorOptionsBuilder().Mode(heatmap.HeatmapColorModeScheme).Scheme("YlGnBu").
			Scale(heatmap.HeatmapColorScaleExponential).Exponent(0.5).Steps(64)).
		YAxis(heatmap.NewYAxisConfigBuilder().Unit(p.unit).AxisPlacement(common.AxisPlacementLeft)).
		CellValues(heatmap.NewCellValuesBuilder().Unit(perSec)).
		RowsFrame(heatmap.NewRowsHeatmapOptionsBuilder().Layout(common.HeatmapCellLayoutAuto)).
		FilterValues(heatmap.NewFilterValueRangeBuilder().Le(1e-9)).
		ShowValue(common.VisibilityModeNever).
		Tooltip(heatmap.NewHeatmapTooltipBuilder().Mode(common.TooltipDisplayModeSingle).YHistogram(true)).
		ShowLegend()
}

// timeBounds are the bounds between the rows of a heat map of times, in seconds: three to a power of
// ten or so, so that each row has a name that can be read.
var timeBounds = []float64{100e-6, 300e-6, 1e-3, 3e-3, 10e-3, 30e-3, 100e-3, 300e-3, 1, 3, 10}

// blockBounds are those of blkio.yaml, every third: from 66 us to 6.2 s, each about 2.8 times the
// one before. Fractions at a histogram's own bounds are exact.
var blockBounds = []float64{65536e-9, 188416e-9, 524288e-9, 1507328e-9, 4194304e-9, 12058624e-9, 33554432e-9, 96468992e-9, 268435456e-9, 771751936e-9, 2147483648e-9, 6174015488e-9}

// buckets makes cumulative buckets of a native histogram. Grafana would draw one with exponential
// buckets as it is, but with some forty rows, whose names cover each other; and one with custom
// buckets, which is how Prometheus stores ebpf_exporter's, wrongly or not at all up to Grafana
// 13.0 (grafana/grafana issues 114584 and 125186). Each bound costs one more evaluation of the
// histogram.
func buckets(bounds []float64, histogram string) string {
	branches := []string{`label_replace(vector(1), "le", "+Inf", "", "")`}
	for _, bound := range bounds {
		le := strconv.FormatFloat(bound, 'g', -1, 64)
		branches = append(branches, fmt.Sprintf(`label_replace(histogram_fraction(-Inf, %s, %s), "le", "%[1]s", "", "")`, le, histogram))
	}
	return fmt.Sprintf("(\n  %s\n)\n* on () group_left () (histogram_count(%s) > 0)", strings.Join(branches, "\n  or "), histogram)
}
