package soak

import (
	"compress/gzip"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/stats"
	"github.com/plumbline/plumbline/tests/testkit"
)

var evening = time.Date(2026, 11, 23, 22, 0, 0, 0, time.UTC)

func longPlan(days int) Plan {
	return Plan{Duration: time.Duration(days) * 24 * time.Hour, Interval: 10 * time.Second, Targets: []matrix.Target{{StorageClass: "local"}, {StorageClass: "r3"}}}
}

func sampleAt(t time.Time, class string, n uint64, each time.Duration) Sample {
	s := Sample{Time: t, StorageClass: class, Load: "canary", Offered: n, Completed: n}
	s.Response.ObserveN(each, n)
	s.Service.ObserveN(each, n)
	return s
}

func names(t *testing.T, folder string) []string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "samples") {
			all = append(all, e.Name())
		}
	}
	return all
}

// Each day has a file, compressed when it is over; all is read, in order and once, also after a kill at the worst
// moments.
func TestDaysAreRotated(t *testing.T) {
	folder := t.TempDir()
	s, _, err := open(folder, longPlan(3), evening)
	if err != nil {
		t.Fatal(err)
	}
	written := 0
	fill := func(s *store, from time.Time, hours int) {
		t.Helper()
		for i := range hours * 6 {
			if err := s.sample(sampleAt(from.Add(time.Duration(i)*10*time.Minute), "r3", 7, time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			written++
		}
	}
	check := func() {
		t.Helper()
		d, err := ReadEvery(folder, 0)
		if err != nil {
			t.Fatal(err)
		}
		n := uint64(0)
		for i := range d.Samples {
			n += d.Samples[i].Completed
			if i > 0 && d.Samples[i].Time.Before(d.Samples[i-1].Time) {
				t.Errorf("sample %d is before the one before it", i)
			}
		}
		if n != uint64(written)*7 || d.Torn != 0 {
			t.Errorf("%d completed, want %d; %d torn", n, written*7, d.Torn)
		}
	}
	fill(s, evening, 30)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	days := []string{"samples-2026-11-23.jsonl.gz", "samples-2026-11-24.jsonl.gz", "samples.jsonl"}
	if got := names(t, folder); !slices.Equal(got, days) {
		t.Fatalf("files %q, want %q", got, days)
	}
	check()

	// Killed after a day's file was renamed, in the middle of compressing it, and after that before it was removed.
	at := func(name string) string { return filepath.Join(folder, name) }
	unzip(t, at(days[0]), at("samples-2026-11-23.jsonl"))
	unzip(t, at(days[1]), at("samples-2026-11-24.jsonl"))
	if err := os.Rename(at(days[1]), at("samples-2026-11-24.jsonl.new")); err != nil {
		t.Fatal(err)
	}
	check()
	if err := os.Chtimes(at(samplesFile), time.Time{}, evening.Add(30*time.Hour)); err != nil {
		t.Fatal(err)
	}
	if s, _, err = open(folder, longPlan(3), evening.Add(48*time.Hour)); err != nil {
		t.Fatal(err)
	}
	fill(s, evening.Add(48*time.Hour), 1)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if got := names(t, folder); !slices.Equal(got, days) {
		t.Errorf("files after a kill %q, want %q", got, days)
	}
	check()

	// A clock that goes back writes nothing over.
	s, _, err = open(folder, longPlan(3), evening.Add(48*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	s.samples.day = "2026-11-23"
	fill(s, evening.Add(49*time.Hour), 1)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	check()
}

func unzip(t *testing.T, from, to string) {
	t.Helper()
	file, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	z, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := out.ReadFrom(z); err != nil {
		t.Fatal(err)
	}
}

// A soak of thirty days is read in little memory, with every count and time; started again it does not read its samples
// at all.
func TestLongSoak(t *testing.T) {
	testkit.Long(t, "writes the samples of thirty days")
	folder := t.TempDir()
	const days = 30
	s, _, err := open(folder, longPlan(days), evening)
	if err != nil {
		t.Fatal(err)
	}
	var truth stats.Distribution
	written := 0
	for i := range days * 8640 / 2 { // every other interval, to be done sooner
		each := time.Millisecond
		if i%10 == 0 {
			each = 50 * time.Millisecond
		}
		for _, class := range []string{"local", "r3"} {
			v := sampleAt(evening.Add(time.Duration(2*i+1)*10*time.Second), class, 5, each)
			if err := s.sample(v); err != nil {
				t.Fatal(err)
			}
		}
		truth.ObserveN(each, 5)
		written++
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	d, err := Read(folder)
	if err != nil {
		t.Fatal(err)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	grown := float64(after.HeapAlloc-before.HeapAlloc) / 1e6
	var got stats.Distribution
	for i := range d.Samples {
		if d.Samples[i].StorageClass == "r3" {
			got.Merge(&d.Samples[i].Response)
		}
	}
	if got.Count() != truth.Count() || got.Quantile(0.95) != truth.Quantile(0.95) || math.Abs(got.Mean()/truth.Mean()-1) > 1e-9 {
		t.Errorf("%d with a p95 of %v, want %d and %v", got.Count(), got.Quantile(0.95), truth.Count(), truth.Quantile(0.95))
	}
	size := int64(0)
	for _, name := range names(t, folder) {
		info, err := os.Stat(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
	}
	t.Logf("%d samples in %d files of %.1f MB; read as %d in intervals of %v, %.0f MB", 2*written, len(names(t, folder)), float64(size)/1e6, len(d.Samples), d.Every, grown)
	if len(d.Samples) > most || len(d.Samples) < most/2 || d.Every != time.Minute || grown > 150 {
		t.Errorf("read as %d samples in intervals of %v, %.0f MB", len(d.Samples), d.Every, grown)
	}
	if len(names(t, folder)) < days || size > 20<<20 {
		t.Errorf("%d files of %d bytes", len(names(t, folder)), size)
	}

	// What it does not read cannot stop it, nor fill its memory.
	if err := os.WriteFile(filepath.Join(folder, "samples-2026-11-25.jsonl.gz"), []byte("no gzip"), 0o644); err != nil {
		t.Fatal(err)
	}
	again, data, err := open(folder, longPlan(days), evening.Add(time.Hour))
	if err != nil || len(data.Samples) != 0 {
		t.Fatalf("started again: %v, %d samples read", err, len(data.Samples))
	}
	if err := again.close(); err != nil {
		t.Fatal(err)
	}
	// A damaged day costs itself, and is named.
	if d, err := Read(folder); err != nil || len(d.Samples) == 0 || len(d.Damaged) != 1 || !strings.Contains(d.Damaged[0].Error(), "samples-2026-11-25.jsonl.gz") {
		t.Errorf("a spoilt day: %v", err)
	}
}
