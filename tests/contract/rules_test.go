package contract

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// The rules pass promtool's lint, and every rules file has tests.
func TestRules(t *testing.T) {
	rules := ruleFiles(t)
	lint := exec.Command(testkit.Tool(t, "promtool"), append([]string{"check", "rules", "--lint=all", "--lint-fatal"}, rules...)...)
	if out, err := lint.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
	for _, path := range rules {
		name := strings.TrimSuffix(filepath.Base(path), ".rules.yaml")
		want := filepath.Join(testkit.Root(), "rules", "tests", name+"_test.yaml")
		if matches, _ := filepath.Glob(want); len(matches) == 0 {
			t.Errorf("%s has no test; write %s", filepath.Base(path), want)
		}
	}
}
