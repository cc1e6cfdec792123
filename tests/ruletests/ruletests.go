// Package ruletests reads promtool's tests of rules, for those that ask them something else than what they expect.
package ruletests

import (
	"slices"
	"strings"
)

// ExpectsAlert tells whether one of a file's tests may have an alert: it expects one by its name, or by the series ALERTS. To
// evaluate the others costs as much, and tells nothing of what an alert has and says.
func ExpectsAlert(test map[string]any) bool {
	has := func(list string, expects func(map[string]any) bool) bool {
		cases, _ := test[list].([]any)
		return slices.ContainsFunc(cases, func(c any) bool {
			one, _ := c.(map[string]any)
			return expects(one)
		})
	}
	return has("alert_rule_test", func(c map[string]any) bool {
		alerts, _ := c["exp_alerts"].([]any)
		return len(alerts) > 0
	}) || has("promql_expr_test", func(c map[string]any) bool {
		expr, _ := c["expr"].(string)
		samples, _ := c["exp_samples"].([]any)
		return strings.Contains(expr, "ALERTS") && len(samples) > 0
	})
}
