package predict

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/schematest"
)

// The documented form is the one that is written and read: with every field set, and with as few as may be.
func TestSchema(t *testing.T) {
	text, err := os.ReadFile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	s := schematest.Compile(t, string(text))
	w := world{clients: 2, think: 0.005, own: own{0.0003, 0.0001, 0.1}, sync: constantly(0.002), reads: 0.5, read: constantly(0.001)}
	load, class := w.run(t, "here", 1)
	load.Sessions, load.Think, load.ThinkSeconds, load.Cores, load.SameCache = 9, Constant, 0.005, 2, true
	class.Replicas, class.Shared, class.Volumes, class.Pooled = 3, 2, 100, []string{"gold", "r3"}
	sized(class, 8192)
	class.Windows[0].Volume = "pvc-1"
	for name, in := range map[string]Input{
		"full":  {Version: Version, Workload: load, From: class, To: class},
		"empty": {Version: Version},
	} {
		written, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		value := schematest.Value(t, written)
		if err := s.Validate(value); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Read(strings.NewReader(string(written))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		// A field that nobody described is not there.
		value.(map[string]any)["workload"].(map[string]any)["colour"] = "red"
		if s.Validate(value) == nil {
			t.Errorf("%s: the schema takes anything", name)
		}
	}
}
