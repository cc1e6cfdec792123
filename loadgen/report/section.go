package report

import (
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/why"
)

// Section is what was found at one time, in words and bars.
type Section struct {
	Title    string
	Findings []Finding
}

// Finding is one storage class in words, and its bars.
type Finding struct {
	Words string
	Bars  []Bar
	// Missing is what is not measured.
	Missing []string
}

// Bar is a time and its layers.
type Bar struct {
	Title  string
	Layers []Part
	// Scale is its length, in percent of the page's longest of its kind.
	Scale   float64
	seconds float64
	kind    string
}

// Part is a layer of a bar.
type Part struct {
	Name, Title string
	Colour      template.CSS
	// Percent of the bar.
	Percent float64
}

// NewFinding takes a finding for a page.
func NewFinding(f *why.Finding) Finding {
	p := Finding{Words: f.Words(), Missing: f.Missing()}
	p.add(f.Main())
	p.add("write", f.Write.Total, f.Write.Layers)
	return p
}

func (p *Finding) add(kind string, mean float64, parts []why.Layer) {
	total := 0.0
	for _, l := range parts {
		total += l.Seconds
	}
	if total <= 0 || !why.Known(mean) {
		return
	}
	b := Bar{Title: fmt.Sprintf("%s %s ms", kind, unit(mean)), Scale: 100, seconds: total, kind: kind}
	for _, l := range parts {
		b.Layers = append(b.Layers, Part{l.Name, fmt.Sprintf("%s %s ms", l.Name, unit(l.Seconds)), template.CSS(layers.Of(l.Name).Colour.CSS), 100 * l.Seconds / total})
	}
	p.Bars = append(p.Bars, b)
}

// scaleBars sets all bars of a kind to one scale.
func scaleBars(sections []Section) {
	longest := map[string]float64{}
	each := func(f func(*Bar)) {
		for _, s := range sections {
			for _, c := range s.Findings {
				for i := range c.Bars {
					f(&c.Bars[i])
				}
			}
		}
	}
	each(func(b *Bar) { longest[b.kind] = math.Max(longest[b.kind], b.seconds) })
	each(func(b *Bar) { b.Scale = 100 * b.seconds / longest[b.kind] })
}

// legend lists the layers that the sections' bars have.
func legend(sections []Section) []Part {
	found := map[string]Part{}
	for _, s := range sections {
		for _, c := range s.Findings {
			for _, b := range c.Bars {
				for _, l := range b.Layers {
					found[l.Name] = l
				}
			}
		}
	}
	var parts []Part
	for _, name := range slices.SortedFunc(maps.Keys(found), layers.Compare) {
		parts = append(parts, found[name])
	}
	return parts
}
