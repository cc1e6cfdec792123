package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Every container of loadgen that the chart starts has arguments that loadgen takes, whatever word a canary's engine is
// given by.
func TestArgumentsOfTheChart(t *testing.T) {
	arguments := []string{"--set=baseline.enabled=true", "--set=baseline.extraArgs={--over=24h,--cluster=eu}"}
	engines := []string{"", "postgresql", "postgres", "mysql"}
	for i, engine := range engines {
		canary := fmt.Sprintf("--set=canaries[%d].", i)
		arguments = append(arguments, fmt.Sprintf("%sname=c%d", canary, i), canary+"database=shop/shop-db", canary+"storageclass=fast", canary+"dsnSecret.name=shop-db-app")
		if engine != "" {
			arguments = append(arguments, canary+"engine="+engine)
		}
	}
	file := rendered(t, filepath.Join(testkit.Root(), "manifests", "chart"), arguments...)
	// A canary and what pins it for each.
	if n := takes(t, file); n != 2*len(engines) {
		t.Errorf("%d containers of loadgen in the chart, want %d", n, 2*len(engines))
	}
}

// The same for the bench, with all that it has, and each published experiment.
func TestArgumentsOfTheBench(t *testing.T) {
	folder := filepath.Join(testkit.Root(), "manifests", "bench")
	files := glob(t, filepath.Join(folder, "*.yaml"))
	all := []string{"--set=postgresqlsync.enabled=true,mysql.enabled=true,soak.enabled=true", "--set=baseline.extraArgs={--max-duration=30m,--force}", "--set=matrix.experiment=wal,matrix.scale=0.3"}
	for _, c := range []struct {
		arguments []string
		want      int
	}{{all, 2 * (3*2 + 6)}, {nil, 2 * (2 + 6)}} {
		c.want += strings.Count(strings.Join(c.arguments, " "), "soak.enabled") + strings.Count(strings.Join(c.arguments, " "), "matrix.experiment")
		if n := takes(t, rendered(t, folder, append(c.arguments, "--set=classes={a,b}")...)); n != c.want {
			t.Errorf("%d containers of loadgen with %q, want %d", n, c.arguments, c.want)
		}
	}
	experiments := 0
	for _, file := range files {
		if name := filepath.Base(file); name != "Chart.yaml" && name != "values.yaml" {
			experiments++
			if n := takes(t, rendered(t, folder, "--set=classes={a,b}", "--values="+file)); n != 1 {
				t.Errorf("%s: %d containers of loadgen, want the matrix", name, n)
			}
		}
	}
	if experiments != len(matrix.Matrices) {
		t.Errorf("%d experiments, want %d", experiments, len(matrix.Matrices))
	}
}

// rendered is a file of what a chart makes.
func rendered(t *testing.T, chart string, arguments ...string) string {
	t.Helper()
	text, err := kubetest.Helm(t, nil, append([]string{"template", "plumbline", chart, "--kube-version=1.36.0", "--set=image.registry=registry.example.org/plumbline"}, arguments...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
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
