package why

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/usual"
)

// Usual compares the means of the volume's operations with what is usual. It is beside the verdict, and changes nothing
// of it.
func (f *Finding) Usual() (all []usual.Comparison) {
	t := f.Target
	if t.Volume == "" {
		return nil
	}
	v := usual.Volume{Backend: t.Backend, Replicas: len(f.Replicas), Solid: f.solid}
	if f.Desired >= 1 {
		v.Replicas = int(f.Desired)
	}
	compare := func(o usual.Operation, count, mean float64) {
		if count >= leastSamples() && Known(mean) {
			all = append(all, usual.Compare(v, o, mean))
		}
	}
	compare(usual.Write, f.Write.Count, first(f.Write.Total, f.Write.Engine))
	// Of commits that share a sync, only one has its time.
	if sync := seconds(f.Commits.Phases, layers.Sync); !f.Commits.UnderWay() && sync > first(seconds(f.Commits.Phases, layers.Wait), 0) {
		compare(usual.Sync, f.Commits.Count, sync)
	}
	compare(usual.Read, f.Reads, f.Read)
	return all
}

// ofVolume names what a comparison is of: a backend and its replicas.
func ofVolume(v usual.Volume) string {
	if slices.Contains(usual.Local, v.Backend) {
		return "a local disk"
	}
	name := Clean(v.Backend)
	if name == "" {
		name = "a volume of an unknown backend"
	}
	switch v.Replicas {
	case 0:
		return name
	case 1:
		return name + " with 1 replica"
	}
	return fmt.Sprintf("%s with %d replicas", name, v.Replicas)
}

// unusual words what is slow for every class that the volume may be of.
func (f *Finding) unusual() string {
	for _, c := range f.Usual() {
		if c.Verdict != usual.Slow {
			continue
		}
		most := 0.0
		for _, one := range c.Candidates {
			most = max(most, one.High)
		}
		ms := msBeside(c.Seconds, most)
		return fmt.Sprintf("a %s of %s ms is not usual for %s (up to %s is)", c.Operation, ms(c.Seconds), ofVolume(c.Volume), ms(most))
	}
	return ""
}

// class words a candidate; ms prints seconds.
func class(c usual.Candidate, v usual.Volume, ms func(float64) string) string {
	text := c.Disk
	if c.Network != "" {
		text += " over " + c.Network
	}
	if c.Replicas != 0 && c.Replicas != v.Replicas {
		text += fmt.Sprintf(" with %d replicas", c.Replicas)
	}
	if c.Low == 0 {
		return text + " (up to " + ms(c.High) + " ms)"
	}
	return text + " (" + ms(c.Low) + " to " + ms(c.High) + " ms)"
}

// Normal words a comparison.
func Normal(c usual.Comparison) string {
	of := " for " + ofVolume(c.Volume)
	if c.Verdict == usual.Unknown {
		return fmt.Sprintf("a %s takes %s ms; what is usual%s is not known", c.Operation, ms(c.Seconds), of)
	}
	var beyond []float64 // the bounds that it is not within
	for _, one := range c.Candidates {
		switch one.Verdict {
		case usual.Slow:
			beyond = append(beyond, one.High)
		case usual.Fast:
			beyond = append(beyond, one.Low)
		}
	}
	ms := msBeside(c.Seconds, beyond...)
	var parts []string
	for _, verdict := range []struct {
		usual.Verdict
		word string
	}{{usual.Normal, "usual"}, {usual.Slow, "slow"}, {usual.Fast, "fast"}} {
		var on []string
		for _, one := range c.Candidates {
			if one.Verdict == verdict.Verdict {
				on = append(on, class(one, c.Volume, ms))
			}
		}
		if len(on) > 0 {
			parts = append(parts, verdict.word+of+" on "+strings.Join(on, ", "))
			of = ""
		}
	}
	return fmt.Sprintf("a %s of %s ms is %s", c.Operation, ms(c.Seconds), strings.Join(parts, "; "))
}
