package predict

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// ms shows seconds as milliseconds.
func ms(seconds float64) string { return digits(1e3*seconds) + " ms" }

// digits shows three of a number.
func digits(v float64) string {
	switch {
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	case v > 0 && v < 0.1:
		return fmt.Sprintf("%.3g", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// notes are what the prediction rests on.
func (p *Prediction) notes(in *Input, f *fitted, there flow) {
	w := in.Workload
	if f.clients > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%d sessions wait for their answers, and then pause as they do now", f.clients))
	} else {
		p.Notes = append(p.Notes, fmt.Sprintf("statements come at the rate at which they come now, %s a second, whatever their answers take (if a number of sessions waits for them: --clients)", digits(f.rate)))
	}
	if w.SameCache {
		p.Notes = append(p.Notes, "as many reads reach storage there as do here")
	}
	if w.Cores == 0 {
		p.Notes = append(p.Notes, "whether the CPUs suffice was not checked: how many there are is not known")
	}
	for i, t := range f.totals {
		if f.held[i] || f.unread(there, i) {
			p.Notes = append(p.Notes, fmt.Sprintf("what %s reads, and writes without a sync, is taken to take as long there as it does now, for the load that it makes beside the others", t.kind))
		}
	}
	if ops, _ := operations(in.From.Windows); ops["sync"].Times.Count() == 0 {
		p.Notes = append(p.Notes, "requests of block devices went in, of others than the log's writer, too, and in wide buckets: surer is what loadgen probe measures of both classes")
	}
	var others []string
	all, _ := totals(w.Windows)
	for _, t := range all {
		known := false
		for _, o := range slices.Concat(f.totals, f.rare) {
			known = known || o.kind == t.kind
		}
		if !known {
			others = append(others, t.kind)
		}
	}
	if len(others) > 0 {
		p.Notes = append(p.Notes, "not of them, for they do not wait for storage or are too few: "+strings.Join(others, ", "))
	}
}

// WriteJSON writes a prediction for a program.
func (p *Prediction) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(p)
}

// WriteText writes a prediction for a person.
func (p *Prediction) WriteText(w io.Writer) error {
	var b strings.Builder
	if p.Refusal != nil {
		fmt.Fprintf(&b, "%s, from %s to %s: no prediction.\n%s.\n%s.\n", p.Workload, p.From, p.To, capital(p.Refusal.Text), capital(p.Refusal.Next))
		_, err := io.WriteString(w, b.String())
		return err
	}
	fmt.Fprintf(&b, "%s, from %s to %s; in brackets what holds nine times of ten:\n\n", p.Workload, p.From, p.To)
	for _, s := range p.Statements {
		if s.Refusal != nil {
			fmt.Fprintf(&b, "  %-10s no prediction: %s; %s\n", s.Kind, s.Refusal.Text, s.Refusal.Next)
			continue
		}
		for _, one := range []struct {
			name string
			v    *Value
		}{{"median", s.Median}, {"p99", s.P99}} {
			fmt.Fprintf(&b, "  %-10s %-7s %10s now, %10s there (%s to %s)\n", s.Kind, one.name, ms(one.v.Now), ms(one.v.Expected), ms(one.v.Low), ms(one.v.High))
		}
	}
	b.WriteByte('\n')
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "- %s.\n", capital(n))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func capital(text string) string {
	if text == "" {
		return text
	}
	return strings.ToUpper(text[:1]) + text[1:]
}
