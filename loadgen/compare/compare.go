// Package compare reports whether the second of two measurements of the same thing is slower.
package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/internal/given"
	"github.com/plumbline/plumbline/loadgen/soak"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// Verdict is the outcome of one pair's comparison.
type Verdict string

const (
	Slower   Verdict = "slower"               // surely, and by more than the threshold
	Faster   Verdict = "faster"               // likewise
	Same     Verdict = "no difference"        // the whole interval is within the threshold
	Unsure   Verdict = "inconclusive"         // neither; Line.Difference.Least is what would have shown
	TooShort Verdict = "too few measurements" // for a verdict
)

// Line is one pair of measurements. Times: a ratio above 1 is slower.
type Line struct {
	Name       string            `json:"name"`
	Metric     string            `json:"metric"`
	First      Side              `json:"first"`
	Second     Side              `json:"second"`
	Difference *stats.Difference `json:"difference,omitempty"`
	// Superiority is the share of pairs, one value of each side, of which the second's is the slower: the
	// effect beside the noise. 0.5 is no effect.
	Superiority float64 `json:"superiority,omitempty"`
	// Seen is the least slowdown, as a share, that would have been called slower four times out of five.
	Seen    float64  `json:"seen,omitempty"`
	Verdict Verdict  `json:"verdict"`
	Words   string   `json:"words"`
	Doubts  []string `json:"doubts,omitempty"`
	step    string   // of a matrix
	// limits are the ratios that verdicts are made by: each ratio is printed with the digits that show on which side it is.
	limits []float64
}

// Side is what one of a pair rests on.
type Side struct {
	Values int `json:"values"` // runs or intervals
	// Their geometric mean; of no values, and of a comparison beside a class, left out, and that of the multiples of
	// its times.
	Seconds  float64 `json:"seconds,omitempty"`
	Multiple float64 `json:"multiple,omitempty"`
	// Unpaired are the values of such a comparison that have none of the class's beside them; they are not in it.
	Unpaired int `json:"unpaired,omitempty"`
}

// Comparison is all pairs that both sides have, and what only one has.
type Comparison struct {
	Kind      string  `json:"kind"` // matrix, soak or baseline
	Threshold float64 `json:"threshold"`
	Alpha     float64 `json:"alpha"` // of each pair: 5 % shared among all of them
	Lines     []Line  `json:"lines"`
	// Beside is the class whose times of the same moments all others are taken as multiples of; empty: of none.
	Beside string `json:"beside,omitempty"`
	// References are that class's own times. They do not count, and show what the multiples hide.
	References []Line `json:"references,omitempty"`
	// Lone are what has nothing of that class beside it, and is not compared.
	Lone  []string `json:"lone,omitempty"`
	OnlyA []string `json:"only_first,omitempty"`
	OnlyB []string `json:"only_second,omitempty"`
	// Failures are what could not be measured on a side, or not always.
	Failures []Failure `json:"failures,omitempty"`
	// Cuts are what is missing of a side's run as a whole.
	Cuts    []Cut   `json:"cuts,omitempty"`
	mustSee float64 // Options.MustSee
}

// familyAlpha is the chance that any pair at all is called different though none is.
const familyAlpha = 0.05

// pair is what a kind of measurement brings to be compared.
type pair struct {
	name, metric string
	step, class  string        // class: the storage class; step: of a matrix
	values       string        // what they are: runs or intervals
	within       time.Duration // how far values of one moment may be apart: of rounds 0
	a, b         series        // times, in seconds
	compare      func(a, b []float64, alpha float64) (stats.Difference, bool)
	doubts       []string
	machine      []string // those of the doubts that are about all pairs
	of           string   // the class of whose times a and b are multiples; empty: of none
}

// Options are how two results are compared.
type Options struct {
	Threshold float64 // differences up to this share do not count
	MustSee   float64 // the slowdown that Blind will be called with; 0: it will not
	Beside    string  // a storage class, see Comparison.Beside
}

// Paths compares two matrices' JSON files, two baselines' records or two soaks' folders.
func Paths(a, b string, o Options) (*Comparison, error) {
	threshold := o.Threshold
	if !(threshold >= 0) || math.IsInf(threshold, 1) {
		return nil, fmt.Errorf("the threshold must be a number that is not below 0")
	}
	kindA, err := kind(a)
	kindB, errB := kind(b)
	if err = errors.Join(err, errB); err != nil {
		return nil, err
	}
	if kindA != kindB {
		return nil, fmt.Errorf("%s is a %s, %s a %s; only equal things can be compared", a, kindA, b, kindB)
	}
	c := &Comparison{Kind: kindA, Threshold: threshold, Beside: o.Beside, mustSee: o.MustSee}
	var pairs []pair
	switch kindA {
	case "matrix":
		pairs, err = c.matrices(a, b)
	case "soak":
		pairs, err = c.soaks(a, b)
	case "baseline":
		pairs, err = c.baselines(a, b)
	}
	if err != nil {
		return nil, err
	}
	if len(pairs) == 0 && len(c.Failures) > 0 {
		return nil, fmt.Errorf("%s and %s have nothing in common that was measured: %s", a, b, list(c.Failures))
	}
	if len(pairs) == 0 {
		return nil, fmt.Errorf("%s and %s have nothing in common", a, b)
	}
	if o.Beside == "" {
		c.Lines = c.judge(pairs)
		return c, nil
	}
	references, multiples, err := c.beside(pairs, o.Beside)
	switch {
	case err != nil && len(c.Failures) > 0:
		return nil, fmt.Errorf("%s and %s: %w; %s", a, b, err, list(c.Failures))
	case err != nil:
		return nil, fmt.Errorf("%s and %s: %w", a, b, err)
	}
	c.Lines = c.judge(multiples)
	c.References = c.judgeAt(c.Alpha, references)
	c.doubtMoved(multiples)
	return c, nil
}

// kind is what a path holds: a soak's folder, or JSON of a matrix or a baseline.
func kind(path string) (string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		if _, err := os.Stat(filepath.Join(path, "soak.json")); err != nil {
			return "", fmt.Errorf("%s: a folder, but no soak's: %w", path, err)
		}
		return "soak", nil
	}
	text, err := given.ReadFile(path)
	if err != nil {
		return "", err
	}
	var known struct {
		Kind   string `json:"kind"`
		Groups []any  `json:"-" yaml:"groups"`
	}
	switch err := json.Unmarshal(text, &known); {
	case err == nil && known.Kind == baseline.RecordKind:
		return "baseline", nil
	case err != nil && yaml.Unmarshal(text, &known) == nil && len(known.Groups) > 0:
		return "", fmt.Errorf("%s: pins have no confidence intervals; compare what loadgen baseline --record writes", path)
	}
	return "matrix", nil
}

// judge compares each pair, all with the confidence that the number of pairs leaves.
func (c *Comparison) judge(pairs []pair) []Line {
	c.Alpha = familyAlpha / float64(len(pairs))
	return c.judgeAt(c.Alpha, pairs)
}

// judgeAt compares each pair with a confidence.
func (c *Comparison) judgeAt(alpha float64, pairs []pair) (lines []Line) {
	for _, p := range pairs {
		l := Line{Name: p.name, step: p.step, Metric: p.metric, First: p.side(p.a), Second: p.side(p.b), Verdict: TooShort, Doubts: p.doubts,
			limits: []float64{1, 1 + c.Threshold, 1 / (1 + c.Threshold), 1 + c.mustSee}}
		if d, ok := p.compare(p.a.values, p.b.values, alpha); ok {
			l.Difference, l.Verdict = &d, c.verdict(d)
			l.Superiority, l.Seen = stats.Superiority(positive(p.a.values), positive(p.b.values)), d.LeastBeyond(c.Threshold)
		}
		l.Words = l.words(p)
		lines = append(lines, l)
	}
	return lines
}

// positive leaves out the runs that failed, which are 0.
func positive(values []float64) (out []float64) {
	for _, v := range values {
		if v > 0 {
			out = append(out, v)
		}
	}
	return out
}

func (c *Comparison) verdict(d stats.Difference) Verdict {
	more, less := 1+c.Threshold, 1/(1+c.Threshold)
	switch {
	case d.Low > 1 && d.Ratio > more:
		return Slower
	case d.High < 1 && d.Ratio < less:
		return Faster
	case d.Low >= less && d.High <= more:
		return Same
	}
	return Unsure
}

// Slower reports whether anything is slower.
func (c *Comparison) Slower() bool {
	for _, l := range c.Lines {
		if l.Verdict == Slower {
			return true
		}
	}
	return false
}

// Blind are the pairs of which a slowdown of a size, as a share, could not have been seen, and that
// are not called slower anyway.
func (c *Comparison) Blind(size float64) (blind []Line) {
	for _, l := range c.Lines {
		if l.Verdict != Slower && (l.Difference == nil || l.Seen > size) {
			blind = append(blind, l)
		}
	}
	return blind
}

// errDifferent is about things that are no two measurements of the same.
func errDifferent(a, b, what string, x, y any) error {
	return fmt.Errorf("%s and %s are not comparable: %s is %v and %v", a, b, what, x, y)
}

var errNoSamples = errors.New("no samples")

// readSoak reads a soak's folder.
func readSoak(path string) (*soak.Data, error) {
	d, err := soak.Read(path)
	if err == nil && len(d.Samples) == 0 {
		err = errNoSamples
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// WriteJSON writes the comparison as one indented JSON object.
func (c *Comparison) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(c)
}
