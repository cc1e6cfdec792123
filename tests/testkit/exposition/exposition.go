// Package exposition compares what a registry exposes with golden files.
package exposition

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/plumbline/plumbline/tests/testkit"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Text returns all that g exposes, in the text format.
func Text(t testing.TB, g prometheus.Gatherer) string {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// Golden compares what g exposes with a file; what is still on its way gets time to arrive.
// The families named volatile, whose values differ from run to run, are left out of both.
func Golden(t testing.TB, g prometheus.Gatherer, path string, volatile ...string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(without(volatile, Text(t, g))), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if got := without(volatile, Text(t, g)); got != string(want) {
			return fmt.Errorf("differs from %s (run with -update to accept)\n%s", path, difference(string(want), got))
		}
		return nil
	})
}

// without drops whole families from a text.
func without(families []string, text string) string {
	var kept strings.Builder
	for line := range strings.Lines(text) {
		name := strings.TrimPrefix(strings.TrimPrefix(line, "# HELP "), "# TYPE ")
		name = name[:strings.IndexAny(name, " {")]
		if !slices.Contains(families, name) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

func difference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	var lines []string
	for _, l := range w {
		if !slices.Contains(g, l) {
			lines = append(lines, "- "+l)
		}
	}
	for _, l := range g {
		if !slices.Contains(w, l) {
			lines = append(lines, "+ "+l)
		}
	}
	return strings.Join(lines, "\n")
}
