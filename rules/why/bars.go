package why

import (
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/plumbline/plumbline/rules/layers"
)

// Printer prints bars, with colours if out is a terminal that wants them.
type Printer struct {
	out     io.Writer
	colours bool
}

// NewPrinter returns a printer for a file: colours if it is a terminal and NO_COLOR is not set.
func NewPrinter(f *os.File) *Printer {
	return &Printer{f, term.IsTerminal(int(f.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// PlainPrinter returns a printer without colours.
func PlainPrinter(w io.Writer) *Printer { return &Printer{out: w} }

// To returns a printer with the same colours that prints to w.
func (p *Printer) To(w io.Writer) *Printer { return &Printer{w, p.colours} }

// barWidth is the length of the longest bar.
const barWidth = 60

func (p *Printer) block(layer string, n int) string {
	if n <= 0 {
		return ""
	}
	if p.colours {
		return fmt.Sprintf("\x1b[48;5;%dm%s\x1b[0m", layers.Of(layer).Colour.Terminal, strings.Repeat(" ", n))
	}
	return strings.Repeat(layers.Of(layer).Letter, n)
}

// stack is one bar of several layers, of so many columns.
func (p *Printer) stack(parts []Layer, columns int) string {
	var b strings.Builder
	for i, n := range share(parts, columns) {
		b.WriteString(p.block(parts[i].Name, n))
	}
	return b.String()
}

// share gives each layer its columns of a bar; those too small for one may get none.
func share(layers []Layer, columns int) []int {
	total, drawn, upTo := sum(layers), 0, 0.0
	all := make([]int, len(layers))
	for i, l := range layers {
		upTo += l.Seconds
		end := int(math.Round(upTo / total * float64(columns)))
		all[i], drawn = end-drawn, end
	}
	return all
}

func sum(layers []Layer) (s float64) {
	for _, l := range layers {
		s += l.Seconds
	}
	return s
}

// Stacks prints a bar for each finding, layer by layer and all to one scale, and a legend of the layers
// there are.
func (p *Printer) Stacks(findings []*Finding) {
	longest, name := 0.0, 0
	used := map[string]bool{}
	for _, f := range findings {
		longest = max(longest, sum(f.main().Layers))
		name = max(name, utf8.RuneCountInString(f.Name()))
	}
	for _, f := range findings {
		fmt.Fprintf(p.out, "%-*s ", name, f.Name())
		parts := f.main().Layers
		if total := sum(parts); total > 0 {
			columns := max(1, int(math.Round(total/longest*barWidth)))
			label := fmt.Sprintf("%5s ms a %-9s", ms(f.main().Mean), f.what())
			if f.main().UnderWay() {
				label = fmt.Sprintf("%-20s", "most have not ended")
			}
			fmt.Fprintf(p.out, "%s |%s\n", label, p.stack(parts, columns))
			for i, n := range share(parts, columns) {
				if n > 0 {
					used[parts[i].Name] = true
				}
			}
		} else {
			fmt.Fprintf(p.out, "    - no %s ended in the last %s\n", f.what(), Span(f.Window))
		}
	}
	if len(used) > 0 {
		var legend []string
		for _, l := range slices.SortedFunc(maps.Keys(used), layers.Compare) {
			legend = append(legend, p.block(l, 1)+" "+l)
		}
		fmt.Fprintf(p.out, "%*s %s\n", name, "", strings.Join(legend, "  "))
	}
}

// Words prints the findings' words, each part of them on a line of its own.
func (p *Printer) Words(findings ...*Finding) {
	for _, f := range findings {
		p.words("- ", f)
	}
}

// words prints a finding's words: the first line begins with a mark, and the others are indented.
func (p *Printer) words(mark string, f *Finding) {
	for i, part := range f.parts() {
		if i > 0 {
			fmt.Fprint(p.out, "  ")
		} else {
			part = mark + part
		}
		p.Wrap(part)
	}
}

// Wrap prints a text in lines of at most 110 columns, all but the first indented.
func (p *Printer) Wrap(text string) {
	const columns, indent = 110, 4
	line := 0
	for i, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		switch {
		case i == 0:
		case line+1+n > columns:
			fmt.Fprint(p.out, "\n"+strings.Repeat(" ", indent))
			line = indent
		default:
			fmt.Fprint(p.out, " ")
			line++
		}
		fmt.Fprint(p.out, word)
		line += n
	}
	fmt.Fprintln(p.out)
}

// Why prints all of a finding: its words, the statement's phases, the write's layers, the replicas,
// the control, alerts, and what is not measured.
func (p *Printer) Why(f *Finding) {
	t := f.Target
	p.words("", f)
	fmt.Fprintln(p.out)
	text := fmt.Sprintf("Means of the last %s, to %s. ", Span(f.Window), f.At.UTC().Format("2006-01-02 15:04:05 UTC"))
	if t.Server != "" {
		text += fmt.Sprintf("Server %s (%s) on %s; ", t.Server, t.Engine, t.Node)
	}
	switch {
	case t.Volume == "":
		text += "on no volume that is known."
	case t.Claim == "":
		text += fmt.Sprintf("volume %s, device %s.", t.Volume, t.Device)
	default:
		text += fmt.Sprintf("volume %s (%s/%s, class %s, %s), device %s.", t.Volume, t.Namespace, t.Claim, t.Class, t.Backend, t.Device)
	}
	p.Wrap(text)
	if s := f.main(); len(s.Phases) > 0 {
		title := fmt.Sprintf("A %s: %s ms, p99 %s; %.0f in the window", f.what(), ms(s.Mean), ms(s.P99), s.Count)
		if s.UnderWay() {
			title += ". Below is the time of those that have not ended, too"
		}
		p.table(title, s.Phases)
	}
	if len(f.Write.Layers) > 0 {
		p.table(fmt.Sprintf("A write of the volume: %s ms; %s in the window", ms(first(f.Write.Total, f.Write.Engine)), count(f.Write.Count)), f.Write.Layers)
	}
	if f.Write.FlushCount >= 1 {
		fmt.Fprintf(p.out, "\nA flush: %s ms; %.0f in the window\n", ms(f.Write.Flush), f.Write.FlushCount)
	}
	for i, c := range f.Usual() {
		if i == 0 {
			fmt.Fprintln(p.out, "\nBeside what is usual (docs/usual.md has the sources):")
		}
		p.Wrap("- " + Normal(c))
	}
	if len(f.Replicas) > 0 {
		fmt.Fprintf(p.out, "\n%-34s %10s %8s %8s %7s  %s\n", "Replica (ms a write)", "round trip", "service", "its disk", "last %", "where")
		for _, r := range f.Replicas {
			fmt.Fprintf(p.out, "  %-32s %10s %8s %8s %7s  %s %s\n", r.Name, dash(r.RoundTrip), dash(r.Service), dash(r.Disk), percent(r.LastShare), r.Node, r.Device)
		}
	}
	if c := f.Control; c != nil {
		fmt.Fprintf(p.out, "\nThe control %s: %s ms a %s", c.Class, ms(c.Statement.Mean), f.what())
		if Known(c.Ratio) {
			fmt.Fprintf(p.out, "; this is %s times that", number(c.Ratio))
		}
		fmt.Fprintln(p.out, ".")
	}
	for i, a := range f.Alerts {
		if i == 0 {
			fmt.Fprintln(p.out, "\nFiring:")
		}
		fmt.Fprintf(p.out, "  %s (%s)", a.Name, a.Severity)
		if a.Replica != "" {
			fmt.Fprintf(p.out, ", replica %s", a.Replica)
		}
		fmt.Fprintln(p.out)
	}
	if missing := f.Missing(); len(missing) > 0 {
		fmt.Fprintln(p.out, "\nNot measured, and so not in the above:")
		for _, m := range missing {
			fmt.Fprintln(p.out, "  "+m)
		}
	}
}

// table prints a bar for each layer, to one scale.
func (p *Printer) table(title string, layers []Layer) {
	longest := 0.0
	for _, l := range layers {
		longest = max(longest, l.Seconds)
	}
	fmt.Fprintf(p.out, "\n%s\n", title)
	for _, l := range layers {
		n := 0
		if longest > 0 {
			n = int(math.Round(l.Seconds / longest * 40))
		}
		bar := strings.Repeat("=", n)
		if p.colours {
			bar = p.block(l.Name, n)
		}
		fmt.Fprintln(p.out, strings.TrimRight(fmt.Sprintf("  %-9s %8s  %s", l.Name, ms(l.Seconds), bar), " "))
	}
}

func dash(v float64) string {
	if !Known(v) {
		return "-"
	}
	return ms(v)
}

func count(v float64) string {
	if !Known(v) {
		return "count unknown"
	}
	return fmt.Sprintf("%.0f", v)
}

func percent(v float64) string {
	if !Known(v) {
		return "-"
	}
	return fmt.Sprintf("%.0f", 100*v)
}
