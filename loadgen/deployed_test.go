package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Every container of loadgen that the chart starts has arguments that loadgen takes, whatever word a canary's engine is given by.
func TestArgumentsOfTheChart(t *testing.T) {
	arguments := []string{"template", "plumbline", filepath.Join(testkit.Root(), "manifests", "chart"), "--kube-version=1.36.0",
		"--set=image.registry=registry.example.org/plumbline", "--set=baseline.enabled=true"}
	engines := []string{"", "postgresql", "postgres", "mysql"}
	for i, engine := range engines {
		canary := fmt.Sprintf("--set=canaries[%d].", i)
		arguments = append(arguments, fmt.Sprintf("%sname=c%d", canary, i), canary+"server=shop/shop-db", canary+"storageclass=fast", canary+"dsnSecret.name=shop-db-app")
		if engine != "" {
			arguments = append(arguments, canary+"engine="+engine)
		}
	}
	text, err := kubetest.Helm(t, nil, arguments...)
	if err != nil {
		t.Fatalf("%v: %.500s", err, text)
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	// A canary and what pins it for each.
	if n := takes(t, file); n != 2*len(engines) {
		t.Errorf("%d containers of loadgen in the chart, want %d", n, 2*len(engines))
	}
}

// The same for the manifests that a kustomization is made of.
func TestArgumentsOfTheManifests(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(filepath.Join(testkit.Root(), "manifests", "kubernetes"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.Contains(string(text), "image: registry.invalid/plumbline/loadgen") {
			seen += takes(t, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// Three canaries, three baselines, seven jobs, a soak and a matrix.
	if seen < 15 {
		t.Errorf("only %d containers of loadgen in the manifests", seen)
	}
}

// takes checks the arguments of each container of loadgen in a file of objects, and returns how many there are.
func takes(t *testing.T, file string) (n int) {
	t.Helper()
	for _, o := range kubetest.Read(t, file) {
		for _, args := range argumentsIn(o.Object) {
			n++
			p := newProgram()
			if chosen, err := p.Flags.Parse(args); err != nil || chosen != args[0] || p.chosen == nil {
				t.Errorf("%s: %s %s: %q: takes %q, %v", filepath.Base(file), o.GetKind(), o.GetName(), args, chosen, err)
			}
		}
	}
	return n
}

// argumentsIn are those of each container of loadgen that is anywhere in an object.
func argumentsIn(value any) (all [][]string) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			all = append(all, argumentsIn(item)...)
		}
	case map[string]any:
		image, _ := v["image"].(string)
		if args, ok := v["args"].([]any); ok && len(args) > 0 && strings.Contains(image, "/plumbline/loadgen") {
			var words []string
			for _, a := range args {
				words = append(words, fmt.Sprint(a))
			}
			return [][]string{words}
		}
		for _, item := range v {
			all = append(all, argumentsIn(item)...)
		}
	}
	return all
}
