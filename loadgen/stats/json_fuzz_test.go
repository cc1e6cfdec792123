package stats

import (
	"encoding/json"
	"testing"
	"time"
)

// FuzzDistribution reads a distribution from a file of a soak, which a power cut may have
// spoilt. One that is accepted is written as it was read, and any quantile of it can be read.
func FuzzDistribution(f *testing.F) {
	var d Distribution
	d.Observe(time.Millisecond)
	d.Observe(time.Hour)
	text, err := json.Marshal(d)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"n":1,"slots":[[18446744073709551615,1]]}`))
	f.Add([]byte(`{"n":0,"slots":[[3,18446744073709551615],[3,1]]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var d, again Distribution
		if json.Unmarshal(text, &d) != nil {
			return
		}
		written, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(written, &again); err != nil {
			t.Errorf("what was written of an accepted one is refused: %v\n%s", err, written)
		}
		d.Quantile(0.99)
	})
}
