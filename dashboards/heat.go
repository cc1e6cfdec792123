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

// classicBuckets makes cumulative buckets of a native histogram with custom buckets, which is
// how Prometheus stores ebpf_exporter's: Grafana up to 13.0 draws such a histogram wrongly or
// not at all (grafana/grafana issues 114584 and 125186). The bounds are every second one of
// blkio.yaml, powers of two in nanoseconds from 66 us to 4.3 s, so the fractions are exact.
func classicBuckets(histogram string) string {
	var branches []string
	for power := 16; power <= 32; power++ {
		le := strconv.FormatFloat(float64(uint64(1)<<power)/1e9, 'g', -1, 64)
		branches = append(branches, fmt.Sprintf(`label_replace(histogram_fraction(-Inf, %s, %s), "le", "%[1]s", "", "")`, le, histogram))
	}
	return fmt.Sprintf("(\n  %s\n  or label_replace(histogram_fraction(-Inf, +Inf, %s), \"le\", \"+Inf\", \"\", \"\")\n)\n* on () group_left () histogram_count(%[2]s)",
		strings.Join(branches, "\n  or "), histogram)
}
