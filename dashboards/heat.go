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

// heat is a heat map: how many operations took how long, over time. Its one query gives
// native histograms with exponential buckets, which Grafana draws as they are.
type heat struct {
	// classic is for a query made by classicBuckets: series by the label le.
	classic bool
}

func (h heat) build(p panel) cog.Builder[dashboard.Panel] {
	target := prometheus.NewDataqueryBuilder().RefId("A").Datasource(prometheusSource()).
		Expr(p.queries[0].expr).LegendFormat("{{le}}").Range()
	if h.classic {
		target.Format(prometheus.PromQueryFormatHeatmap)
	}
	return heatmap.NewPanelBuilder().
		Title(p.title).Description(p.text).Datasource(prometheusSource()).Span(p.width).Height(p.height).
		WithTarget(target).
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

// bounds are those of blkio.yaml, every third, in nanoseconds: from 66 us to 6.2 s, each
// about 2.8 times the one before. Fractions at a histogram's own bounds are exact.
var bounds = []uint64{65536, 188416, 524288, 1507328, 4194304, 12058624, 33554432, 96468992, 268435456, 771751936, 2147483648, 6174015488}

// classicBuckets makes cumulative buckets of a native histogram with custom buckets, which is
// how Prometheus stores ebpf_exporter's: Grafana up to 13.0 draws such a histogram wrongly or
// not at all (grafana/grafana issues 114584 and 125186). Each bound costs one more evaluation
// of the histogram.
func classicBuckets(histogram string) string {
	branches := []string{`label_replace(vector(1), "le", "+Inf", "", "")`}
	for _, bound := range bounds {
		le := strconv.FormatFloat(float64(bound)/1e9, 'g', -1, 64)
		branches = append(branches, fmt.Sprintf(`label_replace(histogram_fraction(-Inf, %s, %s), "le", "%[1]s", "", "")`, le, histogram))
	}
	return fmt.Sprintf("(\n  %s\n)\n* on () group_left () histogram_count(%s)", strings.Join(branches, "\n  or "), histogram)
}
