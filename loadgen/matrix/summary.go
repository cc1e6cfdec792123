package matrix

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/loadgen/stats"
)

// Summary is a step on a class over all rounds.
type Summary struct {
	Step         string `json:"step"`
	StorageClass string `json:"storageclass"`
	Runs         int    `json:"runs"` // that did not fail
	// Rate is operations per second: the median round, the lowest and the highest.
	Rate [3]float64 `json:"rate"`
	// Time is the time of one operation at this rate as a multiple of the local disk's, by pairs of the
	// same round; nil if there are too few rounds.
	ToLocal *stats.Difference `json:"to_local,omitempty"`
}

// Rates are the rates of a step on a class, in the order of rounds; 0 stands for a run that failed.
func (r *Report) Rates(step, class string) []float64 {
	rates := make([]float64, max(r.Repeat, 1))
	for _, row := range r.Rows {
		if row.Step == step && row.StorageClass == class && row.Result != nil {
			if i := max(row.Round, 1) - 1; i < len(rates) {
				rates[i] = row.Result.Rate
			}
		}
	}
	return rates
}

// Steps are the names of the steps that were measured, in their order.
func (r *Report) Steps() []string {
	var names []string
	for _, row := range r.Rows {
		if row.Result != nil && !slices.Contains(names, row.Step) {
			names = append(names, row.Step)
		}
	}
	return names
}

// Times are the seconds of one operation, the reciprocals of rates; 0 stays 0.
func Times(rates []float64) []float64 {
	times := make([]float64, len(rates))
	for i, v := range rates {
		if v > 0 {
			times[i] = 1 / v
		}
	}
	return times
}

// sumUp makes the summaries.
func (r *Report) sumUp() {
	r.sumUpClasses()
	r.Summaries = nil
	if r.Repeat < 2 {
		return
	}
	local := ""
	for _, t := range r.Targets {
		if t.Local {
			local = t.StorageClass
		}
	}
	for _, step := range r.Steps() {
		for _, t := range r.Targets {
			rates := r.Rates(step, t.StorageClass)
			good := slices.DeleteFunc(slices.Clone(rates), func(v float64) bool { return v <= 0 })
			s := Summary{Step: step, StorageClass: t.StorageClass, Runs: len(good)}
			if len(good) > 0 {
				slices.Sort(good)
				s.Rate = [3]float64{good[len(good)/2], good[0], good[len(good)-1]}
				if len(good)%2 == 0 {
					s.Rate[0] = (good[len(good)/2-1] + good[len(good)/2]) / 2
				}
			}
			if local != "" && local != t.StorageClass {
				if d, ok := stats.Paired(Times(r.Rates(step, local)), Times(rates), 0.05); ok {
					s.ToLocal = &d
				}
			}
			r.Summaries = append(r.Summaries, s)
		}
	}
}

// summaryTable is the summaries as Markdown.
func (r *Report) summaryTable() string {
	if len(r.Summaries) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n### Over %d rounds\n\nOrder of the classes within a round: %s", r.Repeat, r.Order)
	if r.Order == "random" {
		fmt.Fprintf(&b, ", seed %d", r.Seed)
	}
	b.WriteString(". To local: the time of one operation as a multiple of the local disk's in the same round, with its 95 % interval.\n\n")
	b.WriteString("| step | storage class | runs | per second: median (lowest to highest) | to local | least difference that would show |\n|---|---|---:|---:|---:|---:|\n")
	for _, s := range r.Summaries {
		ratio, least := "", ""
		if s.ToLocal != nil {
			ratio = fmt.Sprintf("%.2f (%.2f to %.2f)", s.ToLocal.Ratio, s.ToLocal.Low, s.ToLocal.High)
			least = fmt.Sprintf("%.0f %%", s.ToLocal.Least*100)
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s (%s to %s) | %s | %s |\n", s.Step, s.StorageClass, s.Runs, perSecond(s.Rate[0]), perSecond(s.Rate[1]), perSecond(s.Rate[2]), ratio, least)
	}
	return b.String()
}
