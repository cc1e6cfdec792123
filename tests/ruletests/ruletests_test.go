package ruletests

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestExpectsAlert(t *testing.T) {
	for text, want := range map[string]bool{
		`{name: nothing tested}`:                                                                              false,
		`{alert_rule_test: [{alertname: A, eval_time: 1m}]}`:                                                  false,
		`{alert_rule_test: [{alertname: A, eval_time: 1m, exp_alerts: []}]}`:                                  false,
		`{alert_rule_test: [{alertname: A, eval_time: 1m}, {alertname: A, eval_time: 9m, exp_alerts: [{}]}]}`: true,
		`{promql_expr_test: [{expr: 'a:b', eval_time: 1m, exp_samples: [{value: 1}]}]}`:                       false,
		`{promql_expr_test: [{expr: 'ALERTS{alertname="A"}', eval_time: 1m, exp_samples: []}]}`:               false,
		`{promql_expr_test: [{expr: 'count(ALERTS)', eval_time: 1m, exp_samples: [{value: 1}]}]}`:             true,
	} {
		var test map[string]any
		if err := yaml.Unmarshal([]byte(text), &test); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := ExpectsAlert(test); got != want {
			t.Errorf("%s: %v, want %v", text, got, want)
		}
	}
}
