package alerting

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/ruletests"
	"github.com/plumbline/plumbline/tests/testkit"
)

var update = flag.Bool("update", false, "write rules/ALERTS.md anew")

const alertsPage = "# Alerts\n\n" +
	"Every alert as a person gets it: rendered with the labels and values of one of its tests. `make generate` writes this page;\n" +
	"do not edit it.\n"

// madeFile has the checksum of the page and its sources as they were when it was written here: rendering takes most of
// a minute.
var (
	alertsFile = filepath.Join(testkit.Root(), "rules", "ALERTS.md")
	madeFile   = filepath.Join(testkit.Root(), "build", "alerts.sha256")
)

// isMade reports whether neither the page nor its sources have changed since it was made.
func isMade(t *testing.T) bool {
	text, err := os.ReadFile(madeFile)
	return err == nil && bytes.Equal(text, sources(t))
}

func sources(t *testing.T) []byte {
	t.Helper()
	hash := sha256.New()
	for _, path := range slices.Concat(ruletests.Files(t), ruletests.Tests(t), []string{alertsFile}, ruletests.Glob(t, "tests", "alerting", "*_test.go")) {
		text, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		fmt.Fprintf(hash, "%s %d\n%s", filepath.Base(path), len(text), text)
	}
	return fmt.Appendf(nil, "%x\n", hash.Sum(nil))
}

// checkAlertsPage compares rules/ALERTS.md with what the alerts' tests render, or writes it.
func checkAlertsPage(t *testing.T, seen map[string][]firing) {
	t.Helper()
	var page strings.Builder
	page.WriteString(alertsPage)
	for _, path := range ruletests.Files(t) {
		var section strings.Builder
		for _, r := range ruletests.Rules(t, path) {
			if r.Alert == "" || len(seen[r.Alert]) == 0 {
				continue
			}
			one := mostTelling(seen[r.Alert])
			_, runbook, _ := strings.Cut(r.Annotations["runbook_url"], "/rules/")
			fmt.Fprintf(&section, "\n### %s\n\n%s", r.Alert, r.Labels["severity"])
			if r.For != "" {
				fmt.Fprintf(&section, " after %s", r.For)
			}
			fmt.Fprintf(&section, " · [runbook](%s)\n\n> **%s**\n>\n> %s\n", runbook, one.summary, one.description)
		}
		if section.Len() > 0 {
			folder, err := filepath.Rel(filepath.Join(testkit.Root(), "rules"), path)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&page, "\n## %s\n%s", strings.TrimSuffix(folder, ".rules.yaml"), section.String())
		}
	}
	if *update {
		if err := os.WriteFile(alertsFile, []byte(page.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			return
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(madeFile), 0o755), os.WriteFile(madeFile, sources(t), 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	if string(text) != page.String() {
		t.Error("rules/ALERTS.md is not what the alerts' tests render; run make generate")
	}
}

// mostTelling is the firing with the most content; of two with as much, always the same one.
func mostTelling(all []firing) firing {
	return slices.MaxFunc(all, func(a, b firing) int {
		return cmp.Or(cmp.Compare(len(a.description), len(b.description)), cmp.Compare(a.description+a.summary, b.description+b.summary))
	})
}
