package baseline

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// A run that is read five times a second is cut every ten seconds, also after a read that came late;
// intervals without a transaction, and one that is not over, are not kept.
func TestPieces(t *testing.T) {
	began := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	window, err := ParseWindow("backup 02:00-02:01 UTC", 3)
	if err != nil {
		t.Fatal(err)
	}
	var p pieces
	var all stats.Distribution
	for i := range 5*120 + 1 {
		now := began.Add(time.Duration(i) * 200 * time.Millisecond)
		second := i / 5
		if i < 150 || i > 250 {
			all.Observe(time.Duration(second/10+1) * time.Millisecond)
		}
		if second >= 75 && second < 87 {
			continue // nobody reads it
		}
		p.add(now, all.Clone, expects([]Window{window}))
	}
	var ends, counts []int
	for _, x := range p.kept {
		ends, counts = append(ends, int(x.End.Sub(began).Seconds())), append(counts, int(x.Count))
		if x.Expected != (x.End.Sub(began) < time.Minute) {
			t.Errorf("the interval to %v is expected to be slow: %v", x.End, x.Expected)
		}
	}
	if want := []int{10, 20, 30, 60, 70, 87, 90, 100, 110, 120}; !reflect.DeepEqual(ends, want) {
		t.Errorf("intervals end after %v s, want %v", ends, want)
	}
	if want := []int{51, 50, 49, 50, 50, 85, 15, 50, 50, 50}; !reflect.DeepEqual(counts, want) {
		t.Errorf("they have %v, want %v", counts, want)
	}
	if got := p.kept[1]; got.P50 < 0.00195 || got.P50 > 0.00205 || got.P95 < got.P50 {
		t.Errorf("the second interval is %+v, all were of 2 ms", got)
	}
}

// An interval's p95 is of its own times, though they are few and an interval before had a longer one.
func TestPieceOfFew(t *testing.T) {
	began := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	var p pieces
	var all stats.Distribution
	for second := range 31 {
		p.add(began.Add(time.Duration(second)*time.Second), all.Clone, expects(nil))
		if all.Observe(2 * time.Millisecond); second == 4 {
			all.Observe(3 * time.Second)
		}
	}
	if len(p.kept) != 3 || p.kept[0].P95 < 2.95 {
		t.Fatalf("intervals %+v, want three, and 3 s as the first one's p95", p.kept)
	}
	for _, x := range p.kept[1:] {
		if x.Count != 10 || x.P95 < 0.00195 || x.P95 > 0.00205 {
			t.Errorf("%+v, all ten were of 2 ms", x)
		}
	}
}

func TestRecordRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "baseline.json")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 11, 22, 2, 0, 0, 0, time.UTC)
	b := Baseline{StorageClass: "r3", Database: "shop", Replicas: 3, Spoilt: "s", Result: result.Result{Profile: "p", TargetRate: 10}, Pieces: []Piece{{at, 9, 0.001, 0.002, true}}}
	if err := WriteRecord(file, []Baseline{b}, 1, "v", at); err != nil {
		t.Fatal(err)
	}
	file.Close()
	got, err := ReadRecord(path)
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Classes[0]; !got.Measured.Equal(at) || got.Interval != 10 || c.Database != "shop" || c.Spoilt != "s" || c.Result.TargetRate != 10 || !reflect.DeepEqual(c.Intervals, b.Pieces) {
		t.Errorf("%+v", got)
	}
}
