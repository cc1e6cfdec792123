package ruletests

import (
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestPossible(t *testing.T) {
	for text, want := range map[string]string{
		`[{record: a, expr: x}, {record: b, expr: y}, {alert: C, expr: 'x > 1'}, {alert: D, expr: 'y > 1'}]`:                                                          "a C",
		`[{record: a, expr: b}, {record: b, expr: 'sum(rate(x[5m]))'}]`:                                                                                               "a b",
		`[{record: a, expr: 'a + 1'}, {record: b, expr: 'x or b + 1'}]`:                                                                                               "b",
		`[{record: a, expr: 'x and y'}, {record: b, expr: 'y or x'}, {record: c, expr: 'x unless y'}, {record: d, expr: '-(y)'}]`:                                     "b c",
		`[{record: a, expr: 'y unless x'}, {record: b, expr: 'x * on () y'}, {record: c, expr: 'x * 2'}, {record: d, expr: '2 / y'}]`:                                 "c",
		`[{record: a, expr: 'vector(1)'}, {record: b, expr: 'absent(y)'}, {record: c, expr: 'absent_over_time(y[1m])'}]`:                                              "a b c",
		`[{record: a, expr: 'vector(scalar(y))'}, {record: b, expr: 'x > scalar(y)'}, {record: c, expr: 'count(y) or vector(0)'}]`:                                    "a b c",
		`[{record: a, expr: 'time()'}, {record: b, expr: 'x{l="1"}'}, {record: c, expr: 'x{l="2"}'}, {record: d, expr: 'x{m=""}'}]`:                                   "a b d",
		`[{record: a, expr: 'x{m!=""}'}, {record: b, expr: '{__name__=~"x|y"}'}, {record: c, expr: '{__name__=~"y.*"}'}]`:                                             "b",
		`[{record: a, labels: {l: "3"}, expr: x}, {record: b, expr: 'a{l="3"}'}, {record: c, expr: 'a{l!="3"}'}, {record: d, expr: 'a{m="1"}'}]`:                      "a b d",
		`[{alert: A, expr: x}, {record: b, expr: 'ALERTS{alertname="A", l="1"}'}, {record: c, expr: 'ALERTS_FOR_STATE'}, {record: d, expr: 'ALERTS{alertname="B"}'}]`: "A b c",
		`[{record: a, expr: 'max_over_time(y[1h:1m])'}, {record: b, expr: 'max_over_time(sum(x)[1h:1m])'}, {record: c, expr: 'histogram_quantile(0.5, y)'}]`:          "b",
	} {
		var written []any
		if err := yaml.Unmarshal([]byte(text), &written); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		var rules []rule
		for _, w := range written {
			r, err := read(w)
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, r)
		}
		input, err := inputOf(map[string]any{"input_series": []any{map[string]any{"series": `x{l="1"}`, "values": "1x9"}}})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range possible(rules, input) {
			name := r.made[0].known["alertname"]
			if name == "" {
				name = r.made[0].known["__name__"]
			}
			got = append(got, name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %q, want %s", text, got, want)
		}
	}
}
