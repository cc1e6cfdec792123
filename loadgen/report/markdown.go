package report

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/result"
)

// clock prints a time.
func clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// withInterval prints a quantile with its confidence interval.
func withInterval(l result.Latency, q float64) string {
	for _, x := range l.Quantiles {
		if x.Q == q {
			return fmt.Sprintf("%s (%s to %s)", unit(x.Value), unit(x.Low), unit(x.High))
		}
	}
	return "-"
}

// unit prints seconds as milliseconds without saying so: the table does.
func unit(seconds float64) string { return strings.TrimSuffix(result.Milliseconds(seconds), " ms") }

// number prints a ratio, or nothing.
func number(v float64) string {
	if math.IsNaN(v) {
		return ""
	}
	return fmt.Sprintf("%.2f", v)
}

// WriteMarkdown writes the report as a page of tables.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n\nFrom %s to %s UTC, %.0f %% of the plan. Times in milliseconds, with 95 %% confidence intervals.\n\n", r.Title, clock(r.Began), clock(r.Last), r.Done*100)
	v := r.Verdict()
	fmt.Fprintf(&b, "**%s**\n\n", v.Heading())
	for _, s := range v.Sentences {
		fmt.Fprintf(&b, "- %s\n", s)
	}
	b.WriteString("\n| load | storage class | transactions | failed | skipped | without a commit | response p50 | p95 | p99 | service p50 | p99 | p95 to local |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, c := range r.Classes {
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %d | %s | %s | %s | %s | %s | %s | %s |\n", c.Load, c.StorageClass, c.Offered, c.Failed, c.Skipped, c.Outages,
			withInterval(c.Response, 0.5), withInterval(c.Response, 0.95), withInterval(c.Response, 0.99),
			unit(c.Service.Quantile(0.5)), unit(c.Service.Quantile(0.99)), number(c.ToLocal))
	}
	if r.Compared != "" {
		fmt.Fprintf(&b, "\n## Beside %s\n\n| load | storage class | its p95 | ratio | differs | beyond its p95 | at least |\n|---|---|---:|---:|---|---:|---:|\n", r.Compared)
		for _, c := range r.Classes {
			if o := c.Other; o != nil {
				fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %.1f %% | %.1f %% |\n", c.Load, c.StorageClass, result.Milliseconds(o.P95), o.RatioText(),
					map[bool]string{true: "yes", false: "no"}[o.Differs], o.Slower*100, o.SlowerLow*100)
			}
		}
		b.WriteString("\nBeyond its p95: 5 % if nothing changed; at least: Wilson's lower bound at 99 %.\n")
	}
	b.WriteString("\n## Changes\n\n")
	none := true
	for _, c := range r.Classes {
		for _, x := range c.Changes {
			none = false
			fmt.Fprintf(&b, "- %s: %s on %s, median response %s", clock(x.Time), c.Load, c.StorageClass, x.Levels())
			if x.When != "" {
				fmt.Fprintf(&b, ", %s", x.When)
			}
			b.WriteString("\n")
		}
	}
	if none {
		b.WriteString("None.\n")
	}
	if len(r.Marks) > 0 {
		b.WriteString("\n## What went on\n\n")
		for _, m := range r.Marks {
			fmt.Fprintf(&b, "- %s to %s: %s\n", clock(m.From), clock(m.To), strings.TrimSpace(m.Kind+" "+m.Name+" "+m.Detail))
		}
	}
	for i, n := range r.Notes {
		if i == 0 {
			b.WriteString("\n## Notes\n\n")
		}
		fmt.Fprintf(&b, "- %s\n", n)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
