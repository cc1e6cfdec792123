package why

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/rules/layers"
)

// hasEngine reports whether an engine or replicas of the volume are measured below its device.
func (f *Finding) hasEngine() bool { return Known(first(f.Write.Engine, slowestOf(f.Replicas).Time())) }

// layerWord names a layer of the finding: below a device there may be an engine.
func (f *Finding) layerWord(name string) string {
	if name == layers.Device && f.hasEngine() {
		return "the way to the engine"
	}
	return layers.Of(name).Words
}

// ms prints seconds as milliseconds with two significant digits, without the unit.
func ms(seconds float64) string { return msOf(seconds, 2) }

func msOf(seconds float64, digits int) string {
	if !Known(seconds) {
		return "?"
	}
	return significant(seconds*1000, digits)
}

// msBeside returns ms for a sentence that compares a figure with others. It prints two digits, or more if the figure
// would else read like one that differs from it.
func msBeside(one float64, others ...float64) func(seconds float64) string {
	digits := 2
	read := func(seconds float64) float64 {
		v, _ := strconv.ParseFloat(msOf(seconds, digits), 64)
		return v
	}
	for digits < 10 && slices.ContainsFunc(others, func(other float64) bool { return other != one && read(other) == read(one) }) {
		digits++
	}
	return func(seconds float64) string { return msOf(seconds, digits) }
}

// number prints two significant digits, and all digits before the point.
func number(v float64) string { return significant(v, 2) }

func significant(v float64, digits int) string {
	if v == 0 || math.Abs(v) < 0.001 {
		return "0"
	}
	decimals := digits - 1 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f", min(max(decimals, 0), digits+1), v)
}

// Span prints a window: 20 s, 5 min.
func Span(d time.Duration) string {
	if d >= 2*time.Minute && d%time.Minute == 0 {
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.0f s", d.Seconds())
}

// Name is what the finding calls its target.
func (f *Finding) Name() string {
	s, t := f.Subject, f.Target
	switch {
	case s.Pod != "":
		return s.Namespace + "/" + s.Pod
	case s.Claim != "":
		return s.Namespace + "/" + s.Claim
	case s.Server != "" || s.Address != "":
		return t.Server
	case s.Volume != "":
		return s.Volume
	case f.Servers > 1:
		return fmt.Sprintf("%s (%s on %s, the slowest of %d servers)", t.Class, t.Server, t.Node, f.Servers)
	}
	return t.Class
}

// Words is the finding in one sentence.
func (f *Finding) Words() string { return strings.Join(f.parts(), "; ") }

// parts are those of its sentence: what takes how long, what explains it, and what is to be known besides.
func (f *Finding) parts() []string {
	name := f.Name()
	if f.Verdict.Reason == Stalled || f.Verdict.Reason == Few || f.Verdict.Reason == Lock && f.main().Count < leastSamples() {
		parts := []string{name + ": " + f.Verdict.Text}
		if f.Verdict.Reason != Few && f.Target.Server != "" && f.main().Count < leastSamples() {
			parts = append(parts, few(f.what()+"s", f.main().Count, f))
		}
		return append(parts, f.tail()...)
	}
	var parts []string
	if f.Target.Server != "" {
		parts = append(parts, f.statementWords(name))
		if w := f.writeWords(); w != "" {
			parts = append(parts, w)
		}
	} else {
		parts = append(parts, name+": no database server is known on it; "+f.writeWords())
	}
	if f.Verdict.Text != "" {
		parts = append(parts, f.Verdict.Text)
	}
	if text := f.queriesText(); text != "" {
		parts = append(parts, text)
	}
	if text := f.unusual(); text != "" {
		parts = append(parts, text)
	}
	return append(parts, f.tail()...)
}

// queriesText names the queries that wait most for the layer to blame.
func (f *Finding) queriesText() string {
	var named []string
	for _, q := range f.Queries {
		before := ""
		if q.Grown {
			before = fmt.Sprintf(", which were %s an hour before", ms(q.Before))
		}
		named = append(named, fmt.Sprintf("%s (%s of its %s ms%s; %.0f %% of all)", q.ID, ms(q.Wait), ms(q.Mean), before, 100*q.Share))
	}
	if len(named) == 0 {
		return ""
	}
	by := "queryid"
	if slices.Contains(digested, f.Target.Engine) {
		by = "digest"
	}
	return "waiting most for it, by " + by + ": " + strings.Join(named, ", ")
}

func (f *Finding) statementWords(name string) string {
	s := f.main()
	if s.UnderWay() {
		return f.underWayWords(name)
	}
	of := ""
	if spent := spentWords(s); len(spent) > 0 {
		of = ", " + strings.Join(spent, " and ")
	}
	switch {
	case f.IsControl:
		return fmt.Sprintf("%s (the control) %ss take %s ms%s", name, f.what(), ms(s.Mean), strings.Replace(of, ", ", ", of which ", 1))
	case f.Control != nil && Known(f.Control.Ratio):
		return fmt.Sprintf("%s %ss take %s times %s's: of %s ms%s", name, f.what(), number(f.Control.Ratio), f.Control.Class, ms(s.Mean), of)
	}
	return fmt.Sprintf("%s %ss take %s ms%s (no control class to compare with)", name, f.what(), ms(s.Mean), strings.Replace(of, ", ", ", of which ", 1))
}

// spentWords words a statement's larger phases: in milliseconds, or as shares of all where they do not fit into its mean.
func spentWords(s Statement) []string {
	whole, print := s.Mean, ms
	if !s.fits() {
		whole = sum(s.Phases)
		print = func(seconds float64) string { return fmt.Sprintf("%.0f %%", 100*seconds/whole) }
	}
	var spent []string
	for _, p := range mainPhases(s.Phases, whole) {
		spent = append(spent, print(p.Seconds)+" "+layers.Of(p.Name).Spent)
	}
	return spent
}

// mainPhases are those that a text mentions: up to two, the largest first, each a good part of the whole.
func mainPhases(phases []Layer, whole float64) []Layer {
	sorted := slices.Clone(phases)
	slices.SortStableFunc(sorted, func(x, y Layer) int { return cmp.Compare(y.Seconds, x.Seconds) })
	sorted = slices.DeleteFunc(sorted, func(p Layer) bool { return !(p.Seconds >= 0.15*whole) })
	return sorted[:min(2, len(sorted))]
}

// underWayWords are those where most of the time is of statements that have not ended: a mean of those that have
// has no such parts.
func (f *Finding) underWayWords(name string) string {
	s := f.main()
	ratio := ""
	if f.Control != nil && Known(f.Control.Ratio) {
		ratio = fmt.Sprintf(", %s times %s's", number(f.Control.Ratio), f.Control.Class)
	}
	return fmt.Sprintf("%s %ss that ended took %s ms%s, but most of the time is of those that have not: %s", name, f.what(), ms(s.Mean), ratio, strings.Join(spentWords(s), " and "))
}

// writeWords words how long a write of the volume takes, and its larger parts.
func (f *Finding) writeWords() string {
	w := f.Write
	total := first(w.Total, w.Engine)
	if !Known(total) {
		return "its writes are not measured"
	}
	if w.Count < leastSamples() {
		return few("writes", w.Count, f)
	}
	type part struct {
		name    string
		seconds float64
	}
	slowest := slowestOf(f.Replicas)
	replica := "its replica"
	if len(f.Replicas) > 1 {
		replica = "the slowest replica"
	}
	parts := []part{{replica, slowest.Time()}}
	for _, layer := range []string{layers.Path, layers.Engine, layers.Queue, layers.Device} {
		name := f.layerWord(layer)
		if layer == layers.Device && !f.hasEngine() {
			name += " " + f.Target.Device
		}
		parts = append(parts, part{name, seconds(w.Layers, layer)})
	}
	slices.SortStableFunc(parts, func(x, y part) int { return cmp.Compare(first(y.seconds, -1), first(x.seconds, -1)) })
	var named []string
	for _, p := range parts {
		if p.seconds >= 0.1*total && len(named) < 3 {
			named = append(named, p.name+" "+ms(p.seconds))
		}
	}
	text := fmt.Sprintf("a write takes %s ms", ms(total))
	if len(named) > 0 {
		text += ", of which " + strings.Join(named, ", ")
	}
	if w.FlushCount >= leastSamples() && w.FlushCount*w.Flush > 0.3*w.Count*total {
		text += fmt.Sprintf("; a flush takes %s ms", ms(w.Flush))
	}
	return text
}

// tail lists what else there is: replicas that are missing, alerts, what is not measured.
func (f *Finding) tail() (parts []string) {
	if f.Healthy < f.Desired {
		text := fmt.Sprintf("%.0f of %.0f replicas are healthy", f.Healthy, f.Desired)
		if f.Rebuilding {
			text += ", one is being rebuilt"
		}
		parts = append(parts, text)
	} else if f.Rebuilding {
		parts = append(parts, "a replica is being rebuilt")
	}
	var names []string
	for _, a := range f.Alerts {
		if a.Severity == "info" {
			continue
		}
		names = append(names, a.Name)
	}
	if len(names) > 0 {
		parts = append(parts, "firing: "+strings.Join(names, ", "))
	}
	return parts
}

// Missing lists what is not measured, and what could not be evaluated, in words; each is also left out of the
// sentences.
func (f *Finding) Missing() (missing []string) {
	missing = slices.Clip(f.failed)
	add := func(known bool, text string) {
		if !known {
			missing = append(missing, text)
		}
	}
	if f.Target.Server != "" {
		add(Known(f.Statements.Mean) || f.Statements.Count == 0, "statements of server "+f.Target.Server+" (the agent, with BPF)")
		add(f.IsControl || f.Control != nil, "a control class on node "+f.Target.Node+" with enough statements to compare with")
	} else {
		add(false, "a database server on this volume")
	}
	if f.Target.Volume == "" {
		return append(missing, "its volume")
	}
	add(Known(f.Write.Total) || f.Write.Count == 0, "block times of device "+f.Target.Device+" (ebpf_exporter or node_exporter)")
	add(!Known(f.Write.Total) || Known(f.Write.Device), "the split of block times into queue and device (ebpf_exporter)")
	if len(f.Replicas) > 0 || f.Desired > 0 {
		add(Known(slowestOf(f.Replicas).Time()), "times of its replicas")
		add(!Known(slowestOf(f.Replicas).Time()) || Known(slowestOf(f.Replicas).Disk), "the disk below its slowest replica")
	}
	return missing
}
