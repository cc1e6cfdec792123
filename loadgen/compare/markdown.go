package compare

import (
	"fmt"
	"io"
	"strings"

	"github.com/plumbline/plumbline/loadgen/internal/words"
)

// WriteMarkdown writes the comparison for people: what is different first, in words, then each pair.
func (c *Comparison) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	count := map[Verdict]int{}
	for _, l := range c.Lines {
		count[l.Verdict]++
	}
	fmt.Fprintf(&b, "%d compared: %d slower, %d faster, %d without a difference, %d inconclusive, %d too short.\n\n",
		len(c.Lines), count[Slower], count[Faster], count[Same], count[Unsure], count[TooShort])
	for _, side := range []FailedSide{First, Second, Both} {
		for _, f := range c.Failures {
			if f.Side == side {
				fmt.Fprintf(&b, "- %s: %s.\n", map[FailedSide]string{First: "**failed in the first**", Second: "**failed in the second**", Both: "failed in both"}[side], f)
			}
		}
	}
	for _, cut := range c.Cuts {
		fmt.Fprintf(&b, "- the %s is not whole: %s.\n", cut.Side, cut)
	}
	if len(c.Failures)+len(c.Cuts) > 0 {
		b.WriteString("\n")
	}
	what := "time"
	if c.Beside != "" {
		what = "multiple of " + c.Beside + "'s time of the same moment"
	}
	fmt.Fprintf(&b, "A ratio is the second's %s to the first's, with its %.1f %% interval; above 1 is slower. A difference counts above %.4g %%.\n\n",
		what, (1-c.Alpha)*100, c.Threshold*100)
	for _, l := range c.References {
		fmt.Fprintf(&b, "- %s's own times, which do not count: %s, the second's to the first's %s, %s.\n", l.Name, l.Metric, l.ratio("unknown"), l.Verdict)
	}
	if len(c.References) > 0 {
		b.WriteString("\n")
	}
	b.WriteString("| what | measure | ratio | verdict | least slowdown that would show | second slower in | doubts |\n|---|---|---:|---|---:|---:|---|\n")
	for _, l := range c.Lines {
		ratio, least, often := l.ratio(""), "", ""
		if l.Difference != nil {
			least, often = l.seen(), fmt.Sprintf("%.0f %%", l.Superiority*100)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s |\n", l.Name, l.Metric, ratio, l.Verdict, least, often, strings.Join(l.Doubts, "; "))
	}
	b.WriteString("\nIn words:\n\n")
	for _, l := range c.Lines {
		fmt.Fprintf(&b, "- %s, %s: %s", l.Name, l.Metric, l.Words)
		if len(l.Doubts) > 0 {
			fmt.Fprintf(&b, "; but %s", strings.Join(l.Doubts, "; "))
		}
		b.WriteString(".\n")
	}
	b.WriteString("\nWhat would show is seen in four of five comparisons like this one.\n")
	if count[TooShort] > 0 {
		b.WriteString("\nToo few measurements: a matrix needs --repeat=4 or more on both sides, a soak or a baseline some hundred intervals.\n")
	}
	if len(c.Lone) > 0 {
		fmt.Fprintf(&b, "\nWithout %s beside it, and so not compared: %s.\n", c.Beside, strings.Join(c.Lone, "; "))
	}
	if len(c.OnlyA) > 0 {
		fmt.Fprintf(&b, "\nOnly in the first: %s.\n", strings.Join(c.OnlyA, ", "))
	}
	if len(c.OnlyB) > 0 {
		fmt.Fprintf(&b, "\nOnly in the second: %s.\n", strings.Join(c.OnlyB, ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// ratio prints a line's ratio with its interval; none is printed where there is none.
func (l Line) ratio(none string) string {
	d := l.Difference
	if d == nil {
		return none
	}
	apart := func(ratio float64) string { return words.Apart(ratio, 3, l.limits...) }
	return fmt.Sprintf("%s (%s to %s)", apart(d.Ratio), apart(d.Low), apart(d.High))
}
