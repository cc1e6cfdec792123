package stats

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// A packed distribution holds what it held before, and can be counted into again.
func TestPack(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var plain, other Distribution
	for range 5000 {
		plain.Observe(time.Duration(random.ExpFloat64() * 1e6))
		other.Observe(time.Duration(random.ExpFloat64() * 1e8))
	}
	text, err := json.Marshal(plain)
	if err != nil {
		t.Fatal(err)
	}
	var read Distribution
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	packed := plain.Clone()
	packed.Pack()
	packed.Pack()
	same := func(name string, a, b *Distribution) {
		t.Helper()
		for q := 0.0; q <= 1; q += 0.01 {
			lowA, highA := a.Interval(q)
			lowB, highB := b.Interval(q)
			if a.Quantile(q) != b.Quantile(q) || lowA != lowB || highA != highB {
				t.Fatalf("%s: quantile %v is %v and %v", name, q, a.Quantile(q), b.Quantile(q))
			}
			if limit := a.Quantile(q); a.Above(limit) != b.Above(limit) {
				t.Fatalf("%s: %d and %d above %v", name, a.Above(limit), b.Above(limit), limit)
			}
		}
		textA, _ := json.Marshal(a)
		textB, _ := json.Marshal(b)
		if string(textA) != string(textB) {
			t.Fatalf("%s: written differently", name)
		}
	}
	for name, d := range map[string]*Distribution{"packed": &packed, "read": &read} {
		if len(d.slots) > 0 || len(d.few) == 0 {
			t.Errorf("%s has %d slots and %d few", name, len(d.slots), len(d.few))
		}
		same(name, &plain, d)
		sum, want := d.Clone(), plain.Clone()
		sum.Merge(&other)
		want.Merge(&other)
		same(name+" and another", &want, &sum)
		back := sum.Since(&other)
		if back.Count() != d.Count() || back.Quantile(0.5) != d.Quantile(0.5) || back.Above(time.Millisecond) != d.Above(time.Millisecond) {
			t.Errorf("%s without another: %d, median %v", name, back.Count(), back.Quantile(0.5))
		}
		sum, want = other.Clone(), other.Clone()
		sum.Merge(d)
		want.Merge(&plain)
		same("another and "+name, &want, &sum)
		sum = d.Clone()
		sum.Observe(time.Hour)
		want = plain.Clone()
		want.Observe(time.Hour)
		same(name+" and one more", &want, &sum)
		same(name+" afterwards", &plain, d)
	}
	var empty Distribution
	empty.Pack()
	if !reflect.DeepEqual(empty, Distribution{}) {
		t.Errorf("empty becomes %+v", empty)
	}
}
