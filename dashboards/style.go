package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// The palette of Okabe and Ito, which people with any colour blindness can tell apart.
const (
	blue       = "#0072B2"
	sky        = "#56B4E9"
	green      = "#009E73"
	yellow     = "#F0E442"
	orange     = "#E69F00"
	vermillion = "#D55E00"
	purple     = "#CC79A7"
	grey       = "#999999"
	// text is the palette's black: that of the theme's text, so that it is seen on dark, too.
	text = "text"
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

// phaseColours are those of a statement's phases and of the layers below them. No two of one
// panel have the same.
var phaseColours = map[string]string{
	"cpu":      sky,
	"runqueue": yellow,
	"read":     green,
	"write":    orange,
	"sync":     vermillion,
	"wait":     purple,
	"client":   text,
}

// layerColours are those of a write's layers.
var layerColours = map[string]string{
	"queue":   yellow,
	"device":  blue,
	"path":    purple,
	"engine":  green,
	"network": orange,
	"replica": grey,
	"disk":    vermillion,
	"flush":   sky,
	"rest":    text,
}

// statementColours are those of what a statement's time is split into from the client to the
// replica's disk; see statementLayers.
var statementColours = map[string]string{
	"client":         text,
	"cpu":            sky,
	"runqueue":       yellow,
	"wait":           purple,
	"volume":         blue,
	"engine":         green,
	"network":        orange,
	"replica":        grey,
	"replica's disk": vermillion,
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
