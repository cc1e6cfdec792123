package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/plumbline/plumbline/rules/layers"
)

// The palette, see the package layers.
const (
	blue       = layers.Blue
	sky        = layers.Sky
	green      = layers.Green
	yellow     = layers.Yellow
	orange     = layers.Orange
	vermillion = layers.Vermillion
	purple     = layers.Purple
	grey       = layers.Grey
	text       = layers.Text
)

// Units, by Grafana's names.
const (
	seconds   = "s"
	ratio     = "percentunit"
	perSec    = "ops"
	byteCount = "bytes"
	bytesSec  = "Bps"
	count     = "short"
	times     = "none"
)

// Colours of a statement's phases, of a write's layers, and of the parts that a statement's time is split into from the
// client to the replica's disk. No two of one panel have the same.
var (
	phaseColours     = coloursOf(layers.IsPhase)
	layerColours     = coloursOf(func(l layers.Layer) bool { return layers.IsStorage(l) || l.Name == layers.Rest })
	statementColours = func() map[string]string {
		colours := map[string]string{}
		for _, p := range layers.Parts() {
			colours[p.Name] = p.Colour
		}
		return colours
	}()
)

func coloursOf(chosen func(layers.Layer) bool) map[string]string {
	colours := map[string]string{}
	for _, name := range layers.Names(chosen) {
		colours[name] = layers.Of(name).Colour.Grafana
	}
	return colours
}

// opColours are those of block operations.
var opColours = map[string]string{"read": green, "write": orange, "flush": vermillion, "discard": grey}

// limit is a value from which on a number is worth a look (warn) and bad (bad). A number at
// which nothing is good or bad has none.
type limit struct{ warn, bad float64 }

// thresholds go from blue through orange to vermillion: no green against red.
func (l *limit) thresholds() cog.Builder[dashboard.ThresholdsConfig] {
	steps := []dashboard.Threshold{{Color: sky}}
	if l != nil {
		low, high := dashboard.Threshold{Value: &l.warn, Color: orange}, dashboard.Threshold{Value: &l.bad, Color: vermillion}
		steps = append(steps, low, high)
		if l.bad < l.warn { // the less the worse
			steps = []dashboard.Threshold{{Color: vermillion}, {Value: &l.bad, Color: orange}, {Value: &l.warn, Color: sky}}
		}
	}
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(steps)
}

// fixedColour is a field's colour as an override.
func fixedColour(colour string) dashboard.DynamicConfigValue {
	return dashboard.DynamicConfigValue{Id: "color", Value: map[string]any{"mode": "fixed", "fixedColor": colour}}
}
