package histograms

import (
	"strings"
	"testing"
)

var some = Of(Either, "h_seconds", "job:h:rate5m")

func TestExpr(t *testing.T) {
	for _, c := range [][2]string{
		{`sum(rate(x_total[5m]))`, `sum(rate(x_total[5m]))`},
		{`histogram_count(rate(h_seconds{op="write"}[5m]))`, `(histogram_count(rate(h_seconds{op="write"}[5m])) or rate(h_seconds_count{op="write"}[5m]))`},
		{`histogram_avg(sum by (node) (rate(h_seconds[5m]))) >= 0`,
			`(histogram_avg(sum by (node) (rate(h_seconds[5m]))) or sum by (node) (rate(h_seconds_sum[5m])) / (sum by (node) (rate(h_seconds_count[5m])) > 0)) >= 0`},
		{`histogram_quantile(0.99, sum by (node) (rate(h_seconds[5m])))`,
			`(histogram_quantile(0.99, sum by (node) (rate(h_seconds[5m]))) or histogram_quantile(0.99, sum by (node, le) (rate(h_seconds_bucket[5m]))))`},
		{`1 - histogram_fraction(0, 0.1, job:h:rate5m)`, `1 - (histogram_fraction(0, 0.1, job:h:rate5m) or histogram_fraction(0, 0.1, job:h:rate5m_bucket))`},
		{`histogram_sum(job:h:rate5m)`, `(histogram_sum(job:h:rate5m) or job:h:rate5m_sum)`},
		// Joined with what is no histogram: of one series of it come many.
		{`histogram_quantile(0.5, job:h:rate5m * on (node) group_left (volume) v_info)`,
			`(histogram_quantile(0.5, job:h:rate5m * on (node) group_left (volume) v_info) or histogram_quantile(0.5, job:h:rate5m_bucket * on (node) group_left (volume) v_info))`},
		{`histogram_quantile(0.5, job:h:rate5m * on (node) well)`,
			`(histogram_quantile(0.5, job:h:rate5m * on (node) well) or histogram_quantile(0.5, job:h:rate5m_bucket * on (node) group_left () well))`},
		{`histogram_quantile(0.5, job:h:rate5m unless on (node) ill)`,
			`(histogram_quantile(0.5, job:h:rate5m unless on (node) ill) or histogram_quantile(0.5, job:h:rate5m_bucket unless on (node) ill))`},
		// Only tested for existence.
		{`up unless on (node) h_seconds`, `up unless on (node) (h_seconds or h_seconds_count)`},
		{`count(h_seconds)`, `count((h_seconds or h_seconds_count))`},
		{`count_over_time(h_seconds[1h:5m]) > 9`, `(count_over_time(h_seconds[1h:5m]) or count_over_time(h_seconds_count[1h:5m])) > 9`},
		// Two functions in one.
		{`histogram_count(h_seconds) > 3 and histogram_avg(h_seconds) > 1`,
			`(histogram_count(h_seconds) or h_seconds_count) > 3 and (histogram_avg(h_seconds) or h_seconds_sum / (h_seconds_count > 0)) > 1`},
	} {
		got, err := some.Expr(c[0])
		if err != nil {
			t.Error(err)
		} else if fold(got) != c[1] {
			t.Errorf("%s\n  is  %s\nwant  %s", c[0], fold(got), c[1])
		}
	}
}

// Where only classic ones are known, no function of native ones is left.
func TestClassicOnly(t *testing.T) {
	h := Of(Classic, "h_seconds")
	for _, c := range [][2]string{
		{`histogram_avg(rate(h_seconds[5m])) >= 0`, `(rate(h_seconds_sum[5m]) / (rate(h_seconds_count[5m]) > 0)) >= 0`},
		{`histogram_quantile(0.9, rate(h_seconds[5m]))`, `histogram_quantile(0.9, rate(h_seconds_bucket[5m]))`},
		{`histogram_count(rate(h_seconds[5m])) * 300 > 200`, `rate(h_seconds_count[5m]) * 300 > 200`},
	} {
		if got, err := h.Expr(c[0]); err != nil || fold(got) != c[1] {
			t.Errorf("%s\n  is  %s\nwant  %s, %v", c[0], fold(got), c[1], err)
		}
	}
}

// fold puts an expression on one line.
func fold(expr string) string {
	return strings.NewReplacer("( ", "(", " )", ")").Replace(strings.Join(strings.Fields(expr), " "))
}

func TestPart(t *testing.T) {
	const expr = `sum_over_time(job:h:rate5m[3h:15m]) * 900 and count_over_time(job:h:rate5m[3h:15m]) > 9`
	if is, err := some.IsHistogram(expr); err != nil || !is {
		t.Fatalf("a histogram: %v, %v", is, err)
	}
	if got, err := some.Expr(expr); err != nil || got != expr {
		t.Errorf("what is a histogram stays: %s, %v", got, err)
	}
	for _, part := range Parts {
		want := strings.ReplaceAll(expr, "job:h:rate5m", "job:h:rate5m"+part)
		if got, err := some.Part(expr, part); err != nil || fold(got) != want {
			t.Errorf("%s: %s, %v; want %s", part, fold(got), err, want)
		}
	}
}

// What would be joined by chance is refused.
func TestRefused(t *testing.T) {
	if got, err := some.Expr(`histogram_quantile(0.5, job:h:rate5m * well)`); err == nil || !strings.Contains(err.Error(), "use on") {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := some.Expr(`histogram_quantile(`); err == nil {
		t.Error("no PromQL")
	}
}
