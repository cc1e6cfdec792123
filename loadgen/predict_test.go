package main

import (
	"encoding/json"
	"errors"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/loadgen/predict/input"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// The command predicts from a Prometheus and, the same, from the file that it saved there; where it cannot know it
// reports that, and has an exit code for it.
func TestPredict(t *testing.T) {
	t.Parallel()
	lab := whytest.Healthy()
	lab.Commit["r1"] = map[string]float64{"cpu": 0.2, "runqueue": 0.1, "sync": 3.5}
	server := httptest.NewServer(lab.Record().Handler(nil))
	defer server.Close()
	saved := filepath.Join(t.TempDir(), "r1.json")
	run := func(want int, args ...string) string {
		t.Helper()
		out, err := exec.Command(binary(t), append([]string{"predict"}, args...)...).CombinedOutput()
		var exit *exec.ExitError
		if code := 0; err != nil && !errors.As(err, &exit) || exit != nil && exit.ExitCode() != want || exit == nil && want != code {
			t.Fatalf("%v: %v, want exit code %d\n%s", args, err, want, out)
		}
		return string(out)
	}
	arguments := []string{"--prometheus=" + server.URL, "--server=r1", "--window=20s", "--windows=4", "--clients=1"}
	first := run(0, append(arguments, "--to=r3", "--save="+saved)...)
	if !strings.Contains(first, "r1, from r1 to r3") || !strings.Contains(first, "commit     median") {
		t.Error(first)
	}
	if again := run(0, "--from-file="+saved); again != first {
		t.Errorf("from the file:\n%s\nfrom Prometheus:\n%s", again, first)
	}
	var p predict.Prediction
	if text := run(5, append(arguments, "--to=gold", "--json")...); json.Unmarshal([]byte(text), &p) != nil || p.Refusal == nil || p.Refusal.Reason != predict.Unmeasured {
		t.Error(text)
	}
	if text := run(1, "--from-file="+saved, "--to-class-file="+saved); !strings.Contains(text, saved) {
		t.Error(text)
	}
}

// Over a store of several clusters it queries the one that is named, and none before one is.
func TestPredictCluster(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(whytest.Clusters(map[string]float64{"": 4, "eu": 5}).Handler(nil))
	defer server.Close()
	for cluster, want := range map[string]string{"": "", "eu": "", "us": `"", "eu"`, "none": `"", "eu"`} {
		r := predictRun{prometheus: server.URL, cluster: cluster, clusterNamed: cluster != "none"}
		r.question = input.Question{Subject: why.Subject{Server: "r3"}, Class: "r1", Window: 20 * time.Second, Windows: 4}
		in, err := r.input(t.Context())
		if want == "" && (err != nil || len(in.Workload.Windows) != 4) || want != "" && (err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--cluster=NAME")) {
			t.Errorf("cluster %q: %+v, %v", cluster, in, err)
		}
	}
}

// What the probe writes is what predict reads.
func TestProbe(t *testing.T) {
	t.Parallel()
	dir := testdb.Folder(t)
	file := filepath.Join(dir, "class.json")
	out, err := exec.Command(binary(t), "probe", "--directory="+dir, "--storageclass=r3", "--replicas=3", "--windows=2", "--window=300ms", "--pause=1ms",
		"--readers=1", "--file-size=4MiB", "--output="+file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c, err := readClass(file)
	if err != nil || c.Name != "r3" || c.Replicas != 3 || len(c.Windows) != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	for _, operation := range []string{"sync", "write", "read"} {
		if n := c.Windows[0].Operations[operation].Times.Count(); n < 1 {
			t.Errorf("%v operations of kind %s", n, operation)
		}
	}
}
