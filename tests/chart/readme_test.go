package chart

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// TestPage checks the objects and values in docs/install/cluster.md: each is YAML without a key twice, and the chart takes
// the values.
func TestPage(t *testing.T) {
	blocks := regexp.MustCompile(`(?m)(?:^    .*\n)+`).FindAllString(read(t, filepath.Join(testkit.Root(), "docs", "install", "cluster.md")), -1)
	values, kinds := 0, map[string]bool{}
	for _, block := range blocks {
		var text strings.Builder
		for line := range strings.Lines(block) {
			text.WriteString(strings.TrimPrefix(line, "    "))
		}
		if !regexp.MustCompile(`^[a-zA-Z]+:`).MatchString(text.String()) {
			continue // commands
		}
		for _, document := range strings.Split(text.String(), "\n---\n") {
			var o map[string]any
			if err := yaml.UnmarshalStrict([]byte(document), &o); err != nil {
				t.Errorf("%s\n%v", document, err)
				continue
			}
			given := o
			if kind, ok := o["kind"].(string); ok {
				kinds[kind] = true
				spec := o["spec"].(map[string]any)
				switch kind {
				case "Application":
					given = spec["source"].(map[string]any)["helm"].(map[string]any)["valuesObject"].(map[string]any)
				case "HelmRelease":
					given = spec["values"].(map[string]any)
				default:
					continue
				}
			}
			values++
			file := filepath.Join(t.TempDir(), "values.yaml")
			written, err := yaml.Marshal(given)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, written, 0o644); err != nil {
				t.Fatal(err)
			}
			if text, err := kubetest.Helm(t, nil, "template", "plumbline", checkout, "--set="+registry, "-f="+file); err != nil {
				t.Errorf("%s\n%s", document, text)
			}
		}
	}
	if values != 4 || !kinds["Application"] || !kinds["HelmRelease"] || !kinds["OCIRepository"] {
		t.Errorf("the page has values in %d places, want canaries, DNS, Argo CD's and Flux'; it has the kinds %v", values, kinds)
	}
}
