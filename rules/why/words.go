package why

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// phaseWords are the phases of a statement, after "of 29 ms, 18".
var phaseWords = map[string]string{
	"cpu": "are work on a CPU", "runqueue": "wait for a CPU", "client": "wait for the client", "wait": "wait for other sessions (their sync, or locks)",
	"read": "wait for reads", "write": "wait for writes of files", "sync": "wait for sync",
}

// layerWords name the layers.
var layerWords = map[string]string{
	"cpu": "work on a CPU", "runqueue": "waiting for a CPU", "client": "waiting for the client", "wait": "waiting for other sessions (their sync, or locks)",
	"read": "reading files", "write": "writing files", "sync": "sync", "queue": "the kernel's queue before the device", "device": "the device",
	"path": "the way over the network to the storage engine", "engine": "the storage engine", "network": "the network to the slowest replica", "replica": "the slowest replica's process",
	"disk": "the disk below the slowest replica", "flush": "the device's cache flush", "rest": "unexplained",
}

// layerWord names a layer of the finding: below a device there may be an engine.
func (f *Finding) layerWord(name string) string {
	if name == "device" && Known(first(f.Write.Engine, slowestOf(f.Replicas).Time())) {
		return "the way from the device to the storage engine"
	}
	return layerWords[name]
}

// ms prints seconds as milliseconds with two significant digits, without the unit.
func ms(seconds float64) string {
	if !Known(seconds) {
		return "?"
	}
	return number(seconds * 1000)
}

// number prints two significant digits, and all digits before the point.
func number(v float64) string {
	if v == 0 || math.Abs(v) < 0.001 {
		return "0"
	}
	decimals := 1 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f", min(max(decimals, 0), 3), v)
}

// span prints a window: 20 s, 5 min.
func span(d time.Duration) string {
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

// Words is the finding in one sentence, or a few.
func (f *Finding) Words() string {
	name := f.Name()
	if f.Verdict.Kind == Stalled || f.Verdict.Kind == Few || f.Verdict.Kind == Lock && f.main().Count < leastSamples {
		parts := []string{name + ": " + f.Verdict.Text}
		if f.Verdict.Kind != Few && f.Target.Server != "" && f.main().Count < leastSamples {
			parts = append(parts, few(f.what()+"s", f.main().Count, f))
		}
		return strings.Join(append(parts, f.tail()...), "; ")
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
	return strings.Join(append(parts, f.tail()...), "; ")
}

func (f *Finding) statementWords(name string) string {
	s := f.main()
	if s.underWay() {
		return f.underWayWords(name)
	}
	var spent []string
	for _, p := range mainPhases(s.Phases, s.Mean) {
		spent = append(spent, ms(p.Seconds)+" "+phaseWords[p.Name])
	}
	of := ""
	if len(spent) > 0 {
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

// mainPhases are those that are told: up to two, the largest first, each a good part of the whole.
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
	var spent []string
	whole := sum(s.Phases)
	for _, p := range mainPhases(s.Phases, whole) {
		spent = append(spent, fmt.Sprintf("%.0f %% %s", 100*p.Seconds/whole, phaseWords[p.Name]))
	}
	ratio := ""
	if f.Control != nil && Known(f.Control.Ratio) {
		ratio = fmt.Sprintf(", %s times %s's", number(f.Control.Ratio), f.Control.Class)
	}
	return fmt.Sprintf("%s %ss that ended took %s ms%s, but most of the time is of those that have not: %s", name, f.what(), ms(s.Mean), ratio, strings.Join(spent, " and "))
}

// writeWords says what a write of the volume takes and what of it its parts, the larger ones.
func (f *Finding) writeWords() string {
	w := f.Write
	total := first(w.Total, w.Engine)
	if !Known(total) {
		return "its writes are not measured"
	}
	if w.Count < leastSamples {
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
	parts := []part{
		{replica, slowest.Time()},
		{"the network before the engine", seconds(w.Layers, "path")},
		{"the engine", seconds(w.Layers, "engine")},
		{"the kernel's queue", seconds(w.Layers, "queue")},
	}
	if Known(first(w.Engine, slowest.Time())) {
		parts = append(parts, part{"the way to the engine", seconds(w.Layers, "device")})
	} else {
		parts = append(parts, part{"the device " + f.Target.Device, seconds(w.Layers, "device")})
	}
	slices.SortStableFunc(parts, func(x, y part) int { return cmp.Compare(first(y.seconds, -1), first(x.seconds, -1)) })
	var told []string
	for _, p := range parts {
		if p.seconds >= 0.1*total && len(told) < 3 {
			told = append(told, p.name+" "+ms(p.seconds))
		}
	}
	text := fmt.Sprintf("a write takes %s ms", ms(total))
	if len(told) > 0 {
		text += ", of which " + strings.Join(told, ", ")
	}
	if w.FlushCount >= leastSamples && w.FlushCount*w.Flush > 0.3*w.Count*total {
		text += fmt.Sprintf("; a flush takes %s ms", ms(w.Flush))
	}
	return text
}

// tail says what else there is: replicas that are missing, alerts, what is not measured.
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
		name := a.Name
		// The canary's alerts fire for the layer that the rules suspect.
		if suspect := cmp.Or(a.Suspect, f.Suspect); suspect != "" && strings.HasPrefix(a.Name, "Canary") {
			name += " (suspect " + suspect + ")"
		}
		names = append(names, name)
	}
	if len(names) > 0 {
		parts = append(parts, "firing: "+strings.Join(names, ", "))
	}
	return parts
}

// Missing lists what is not measured, in words; each is also left out of the sentences.
func (f *Finding) Missing() (missing []string) {
	say := func(known bool, text string) {
		if !known {
			missing = append(missing, text)
		}
	}
	if f.Target.Server != "" {
		say(Known(f.Statements.Mean) || f.Statements.Count == 0, "statements of server "+f.Target.Server+" (the agent, with BPF)")
		say(f.IsControl || f.Control != nil, "a control class on node "+f.Target.Node+" with enough statements to compare with")
	} else {
		say(false, "a database server on this volume")
	}
	if f.Target.Volume == "" {
		return append(missing, "its volume")
	}
	say(Known(f.Write.Total) || f.Write.Count == 0, "block times of device "+f.Target.Device+" (ebpf_exporter or node_exporter)")
	say(!Known(f.Write.Total) || Known(f.Write.Device), "the split of block times into queue and device (ebpf_exporter)")
	if len(f.Replicas) > 0 || f.Desired > 0 {
		say(Known(slowestOf(f.Replicas).Time()), "times of its replicas")
		say(!Known(slowestOf(f.Replicas).Time()) || Known(slowestOf(f.Replicas).Disk), "the disk below its slowest replica")
	}
	return missing
}
