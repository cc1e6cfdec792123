package contract

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// The rules pass promtool's lint and every test in rules/tests, and every rules file has one.
func TestRules(t *testing.T) {
	promtool := testkit.Tool(t, "promtool")
	rules, tests := glob(t, "rules", "*.rules.yaml"), glob(t, "rules", "tests", "*_test.yaml")
	for args, files := range map[string][]string{
		"check rules --lint=all --lint-fatal": rules,
		"test rules":                          tests,
	} {
		cmd := exec.Command(promtool, append(strings.Fields(args), files...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", args, err, out)
		}
	}
	for _, path := range rules {
		name := strings.TrimSuffix(filepath.Base(path), ".rules.yaml")
		want := filepath.Join(filepath.Dir(path), "tests", name+"_test.yaml")
		if matches, _ := filepath.Glob(want); len(matches) == 0 {
			t.Errorf("%s has no test; write %s", filepath.Base(path), want)
		}
	}
}
