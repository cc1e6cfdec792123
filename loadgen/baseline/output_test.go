package baseline

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/tests/testkit"
)

var at = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// measured is a baseline of one class and server with a 95th percentile.
func measured(class, server string, p95 float64) []Baseline {
	r := result.Result{Tool: "canary", Profile: "p", TargetRate: 10, Completed: 6000,
		Response: result.Latency{Quantiles: []result.Quantile{{Q: 0.95, Value: p95, Low: p95, High: p95}}}}
	return []Baseline{{StorageClass: class, Database: server, Result: r, Precise: true}}
}

// A file's previous pins are kept, as many as requested, and none is lost to a slower one.
func TestFileHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baseline.rules.yaml")
	o := Output{Version: "v", History: 2, RefuseSlower: 0.15}
	for _, p95 := range []float64{0.004, 0.003, 0.002, 0.001} {
		if err := o.ToFile(path, measured("r3", "", p95), at); err != nil {
			t.Fatal(err)
		}
	}
	has := func(name, want string) {
		t.Helper()
		if text, err := os.ReadFile(name); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: want %s (%v):\n%s", filepath.Base(name), want, err, text)
		}
	}
	has(path, "vector(0.001)")
	has(path+".1", "vector(0.002)")
	has(path+".2", "vector(0.003)")
	if _, err := os.Stat(path + ".3"); err == nil {
		t.Error("three previous files are kept, want 2")
	}
	err := o.ToFile(path, measured("r3", "", 0.0012), at)
	if err == nil || !strings.Contains(err.Error(), "r3") || !strings.Contains(err.Error(), "1.200 ms") || !strings.Contains(err.Error(), "20 % longer than the pinned one of 1.000 ms, and --refuse-slower allows 15 %: the old pin stays, without proof") {
		t.Errorf("a pin slower by 20 %% gave %v", err)
	}
	has(path, "vector(0.001)")
	// Another server's pin is another load.
	if err := o.ToFile(path, measured("r3", "db/shop", 0.1), at); err != nil {
		t.Error(err)
	}
	if matches, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.rules.yaml")); len(matches) != 1 {
		t.Errorf("Prometheus would load %v", matches)
	}
	// What cannot be replaced takes none of the previous ones from them.
	before, err := os.ReadFile(path + ".1")
	inTheWay := filepath.Join(filepath.Dir(path), ".baseline.rules.yaml.loadgen-tmp")
	if err := errors.Join(err, os.Mkdir(inTheWay, 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := o.ToFile(path, measured("r3", "db/shop", 0.1), at); err == nil || !strings.Contains(err.Error(), inTheWay) {
		t.Errorf("what is in the way gave %v", err)
	}
	has(path+".1", string(before))
	if err := os.Remove(inTheWay); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("not: [a, rules file"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := o.ToFile(path, measured("r3", "", 0.001), at); err == nil || !strings.Contains(err.Error(), "is not overwritten") {
		t.Errorf("a file that is no rules file: %v", err)
	}
}

// Where pins could not be written is an error before anything is measured.
func TestCheckFile(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "baseline.rules.yaml")
	o := Output{History: 2}
	if err := o.CheckFile(path); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(path, []byte("not: [a, rules file"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{path: "is not overwritten", filepath.Join(folder, "no", "x.yaml"): "no such file", folder: "a folder"} {
		if err := o.CheckFile(path); err == nil || !strings.Contains(err.Error(), "--output: "+path) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}

// That the previous pins could not be kept is an error before anything is measured, too, for then no new ones are
// written.
func TestCheckHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baseline.rules.yaml")
	if err := (Output{}).ToFile(path, measured("r3", "", 0.001), at); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".1", 0o755); err != nil {
		t.Fatal(err)
	}
	for history, refused := range map[int]bool{0: false, 2: true} {
		o := Output{History: history}
		for _, err := range []error{o.CheckFile(path), o.ToFile(path, measured("r3", "", 0.001), at)} {
			if (err != nil) != refused || refused && !strings.Contains(err.Error(), path+".1") {
				t.Errorf("with a history of %d: %v", history, err)
			}
		}
	}
}

// An object gets the pins, and keeps the previous ones and all that is not its own.
func TestPrometheusRule(t *testing.T) {
	o := Output{Version: "v", History: 2}
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	object.SetLabels(map[string]string{"release": "stack"})
	object.SetAnnotations(map[string]string{"note": "kept", previousAnnotation: "not JSON"})
	for _, p95 := range []float64{0.004, 0.003, 0.002, 0.001} {
		if err := o.replace(object, measured("r3", "db/shop", p95), at); err != nil {
			t.Fatal(err)
		}
	}
	if l := object.GetLabels(); l["release"] != "stack" || l[rulesLabel] != RulesVersion {
		t.Errorf("labels are %v", l)
	}
	a := object.GetAnnotations()
	if a["note"] != "kept" || !strings.Contains(a[measuredAnnotation], "r3 db/shop: 6000 transactions") {
		t.Errorf("annotations are %v", a)
	}
	var before []previous
	if err := json.Unmarshal([]byte(a[previousAnnotation]), &before); err != nil || len(before) != 2 ||
		before[0].Groups[0].Rules[0].Expr != "vector(0.002)" || before[1].Groups[0].Rules[0].Expr != "vector(0.003)" || !strings.Contains(before[0].Measured, "p95 2.000 ms") {
		t.Errorf("previous pins are %v (%v)", before, err)
	}
	groups, _, err := unstructured.NestedSlice(object.Object, "spec", "groups")
	if err != nil || len(groups) != 1 {
		t.Fatalf("groups are %v (%v)", groups, err)
	}
	first := groups[0].(map[string]any)["rules"].([]any)[0].(map[string]any)
	labels := first["labels"].(map[string]any)
	if first["expr"] != "vector(0.001)" || labels["database"] != "db/shop" || labels["rules"] != RulesVersion || labels["cluster"] != nil {
		t.Errorf("the first pin is %v", first)
	}
	o.RefuseSlower = 0.15
	if err := o.replace(object, measured("r3", "db/shop", 0.002), at); err == nil {
		t.Error("a pin twice as slow was taken")
	}
}

func TestHistoryFitsItsRoom(t *testing.T) {
	large := previous{Measured: strings.Repeat("x", mostPrevious/3)}
	text, err := fit([]previous{large, large, large, large}, 5)
	var kept []previous
	if err != nil || json.Unmarshal([]byte(text), &kept) != nil || len(kept) != 2 {
		t.Errorf("%d of four large ones are kept, want 2 (%v)", len(kept), err)
	}
}

func TestPlace(t *testing.T) {
	if n, o, err := place("db/baseline"); n != "db" || o != "baseline" || err != nil {
		t.Error(n, o, err)
	}
	for _, name := range []string{"", "/", "db/", "/x", "a/b/c", "outside-a-pod"} {
		if _, _, err := place(name); err == nil {
			t.Errorf("%q is taken for a place", name)
		}
	}
}

// The rules take the pins that this version makes, and none of another.
func TestRulesTakeThisVersion(t *testing.T) {
	for _, name := range []string{"canary", "blind"} {
		text, err := os.ReadFile(filepath.Join(testkit.Root(), "rules", name+".rules.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		found := strings.Count(string(text), `rules=~"|`) + strings.Count(string(text), `rules!~"|`)
		if want := strings.Count(string(text), `~"|`+RulesVersion+`"`); found == 0 || found != want {
			t.Errorf("%s.rules.yaml names the version of pins %d times, %d of them %s", name, found, want, RulesVersion)
		}
		for _, loaded := range regexp.MustCompile(`version (\d+) is loaded`).FindAllStringSubmatch(string(text), -1) {
			if loaded[1] != RulesVersion {
				t.Errorf("%s.rules.yaml: %s, want %s", name, loaded[0], RulesVersion)
			}
		}
	}
}
