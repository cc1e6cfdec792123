package contract

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/ruletests"
	"github.com/plumbline/plumbline/tests/testkit"
)

// lint has promtool check files of rules.
func lint(t *testing.T, files []string) {
	t.Helper()
	check := exec.Command(testkit.Tool(t, "promtool"), append([]string{"check", "rules", "--lint=all", "--lint-fatal"}, files...)...)
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// The rules pass promtool's lint, and every rules file has tests.
func TestRules(t *testing.T) {
	rules := ruletests.Files(t)
	lint(t, rules)
	for _, path := range rules {
		name := strings.TrimSuffix(filepath.Base(path), ".rules.yaml")
		want := filepath.Join(testkit.Root(), "rules", "tests", name+"_test.yaml")
		if matches, _ := filepath.Glob(want); len(matches) == 0 {
			t.Errorf("%s has no test; write %s", filepath.Base(path), want)
		}
	}
}
