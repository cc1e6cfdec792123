package rows

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestPage(t *testing.T) {
	older, err := Read("testdata/older.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	newer, err := Read("testdata/newer.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := Page(&got, merge(older, newer)); err != nil {
		t.Fatal(err)
	}
	const golden = "testdata/page.md"
	if *update {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("differs from %s (run with -update to accept):\n%s", golden, got.String())
	}
}

// A run's rows take the place of those of their names; others stay, with their own run.
func TestRunsAreMerged(t *testing.T) {
	folder := t.TempDir()
	record := func(command string, values ...string) {
		t.Helper()
		f, err := Open(folder, "proof", command)
		if err != nil {
			t.Fatal(err)
		}
		f.Drop("section", "error")
		for i := 0; i < len(values); i += 2 {
			f.Add("section", values[i], "value", values[i+1])
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	record("first", "a", "1 s", "b", "2 s", "error", "it broke")
	record("second", "b", "3 s", "c", "4 s")
	rows, err := Read(filepath.Join(folder, "proof.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range rows {
		if r.Gone {
			continue // for readers of many runs' rows
		}
		got = append(got, r.What+"="+r.cell("value")+" "+r.Run.Command)
		if r.Run.Machine.Cores < 1 || r.Run.Machine.Memory < 1 || r.Run.Machine.Kernel == "" || r.Run.LoadAfter == "" || time.Since(r.Run.Began) > time.Hour {
			t.Errorf("run without its machine: %+v", r.Run)
		}
	}
	if want := "a=1 s first, b=3 s second, c=4 s second"; strings.Join(got, ", ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestBadFilesAreRefused(t *testing.T) {
	for name, text := range map[string]string{
		"half a line":     `{"section": "s", "wh`,
		"without section": `{"what": "w"}`,
		"without what":    `{"section": "s"}`,
	} {
		path := filepath.Join(t.TempDir(), "bad.jsonl")
		if err := os.WriteFile(path, []byte("{\"section\":\"s\",\"what\":\"w\"}\n"+text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), path+", line 2") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestSpread(t *testing.T) {
	if got := Spread([]float64{5, 1, 3, 2, 4}, "%.1f %%"); got != "2.0 % to 4.0 %, 5 turns" {
		t.Error(got)
	}
	if got := Median([]float64{4, 1, 3, 2}); got != 2.5 {
		t.Error(got)
	}
}
