package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/tests/testkit"
)

// A matrix as an operator runs it: two directories of one disk as classes, with its JSON and its page; the
// page made later of the JSON is the same, compare takes it, and so does export.
func TestMatrixLive(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	targets, out, page := filepath.Join(folder, "targets.yaml"), filepath.Join(folder, "today.json"), filepath.Join(folder, "today.html")
	if err := os.WriteFile(targets, []byte("targets:\n  - {storageclass: local, local: true, replicas: 1, directory: "+testdb.Folder(t)+
		"}\n  - {storageclass: twin, replicas: 1, directory: "+testdb.Folder(t)+"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(want int, args ...string) string {
		t.Helper()
		command := exec.Command(binary(t), args...)
		text, _ := command.CombinedOutput()
		if code := command.ProcessState.ExitCode(); code != want {
			t.Fatalf("%v: exit code %d, want %d\n%s", args, code, want, text)
		}
		return string(text)
	}
	// Nobody listens at --prometheus' port: the layers are unknown, and the matrix is whole all the same.
	run(0, "matrix", "wal", "--targets="+targets, "--scale=0.01", "--min-duration=1s", "--max-warmup=0s", "--repeat=4", "--fio.path="+testkit.Tool(t, "fio"),
		"--prometheus=http://127.0.0.1:1", "--output="+out, "--html="+page)
	r, err := matrix.Read(out)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Classes) != 2 || r.Classes[1].Difference == nil || r.Classes[1].Rounds != 4 || r.Schema != matrix.SchemaVersion {
		t.Errorf("classes %+v", r.Classes)
	}
	for _, row := range r.Rows {
		if row.Limit == nil || row.Generator <= 0 || row.Layers != nil {
			t.Errorf("round %d on %s: limit %+v, %v CPUs", row.Round, row.StorageClass, row.Limit, row.Generator)
		}
	}
	first, err := os.ReadFile(page)
	if err != nil || !strings.Contains(string(first), "<b>twin: ") {
		t.Errorf("the page: %v\n%.2000s", err, first)
	}
	if text := run(0, "report", "--matrix="+out, "--html="+page); !strings.Contains(text, "### Over 4 rounds") {
		t.Errorf("the Markdown has no summary:\n%s", text)
	}
	if again, err := os.ReadFile(page); err != nil || string(again) != string(first) {
		t.Errorf("the page made of the JSON differs (%v)", err)
	}
	if text := run(0, "compare", out, out); !strings.Contains(text, "2 compared: 0 slower") {
		t.Errorf("%s", text)
	}
	run(0, "export", "--folder="+filepath.Join(folder, "otava"), out)
	if text, err := os.ReadFile(filepath.Join(folder, "otava", "otava.yaml")); err != nil || !strings.Contains(string(text), "matrix.fio-wal-8k-on-twin:") {
		t.Errorf("%v\n%s", err, text)
	}
	run(1, "report", "--matrix="+out, "--folder="+folder)
	run(1, "report")
}
