package soak

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// filling is a file on a disk that has room for so many bytes more, and for later once that was too little. Nothing may
// be taken back of it if it is stubborn.
type filling struct {
	*os.File
	room     int
	stubborn bool
	later    int
}

func (f *filling) Write(b []byte) (int, error) {
	if len(b) <= f.room {
		f.room -= len(b)
		return f.File.Write(b)
	}
	n, err := f.File.Write(b[:f.room])
	f.room, f.later = f.later, 0
	if err == nil {
		err = syscall.ENOSPC
	}
	return n, err
}

func (f *filling) Truncate(size int64) error {
	if f.stubborn {
		return syscall.EIO
	}
	return f.File.Truncate(size)
}

// A sample and an event that a full disk took half of cost only themselves: what is written once there is room again is
// read.
func TestHalfWritten(t *testing.T) {
	for name, c := range map[string]struct {
		stubborn bool
		torn     int
	}{"taken back": {false, 0}, "that cannot be taken back": {true, 4}} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			s, _, err := open(folder, longPlan(1), evening)
			if err != nil {
				t.Fatal(err)
			}
			var disks []*filling
			for _, l := range []*lineFile{s.samples.file, s.events} {
				disk := &filling{File: l.on.(*os.File), room: 1 << 20, stubborn: c.stubborn}
				l.on, disks = disk, append(disks, disk)
			}
			keep := func(second int) error {
				at := evening.Add(time.Duration(second) * time.Second)
				a := s.sample(sampleAt(at, "r3", uint64(second), time.Millisecond))
				b := s.event(Event{at, PhaseEvent, fmt.Sprint(second), Begin, ""})
				if (a == nil) != (b == nil) {
					t.Fatalf("%v, %v", a, b)
				}
				return a
			}
			for second, room := range []int{1 << 20, 40, 0, 20, 1 << 20, 1 << 20} {
				for _, disk := range disks {
					disk.room = room
				}
				if err := keep(second + 1); (err == nil) != (room > 40) {
					t.Fatalf("second %d with room of %d: %v", second+1, room, err)
				}
			}
			if err := s.close(); err != nil {
				t.Fatal(err)
			}
			d := read(t, folder)
			var seconds []uint64
			for _, v := range d.Samples {
				seconds = append(seconds, v.Completed)
			}
			var names []string
			for _, e := range d.Events {
				names = append(names, e.Name)
			}
			if !slices.Equal(seconds, []uint64{1, 5, 6}) || !slices.Equal(names, []string{"1", "5", "6"}) {
				t.Errorf("samples %v and events %v are read, want 1, 5 and 6 of each", seconds, names)
			}
			if d.Torn != c.torn {
				t.Errorf("%d lines are torn, want %d", d.Torn, c.torn)
			}
		})
	}
}

// A folder with more than any soak writes costs no more memory.
func TestMostKept(t *testing.T) {
	full := &Data{Every: time.Second, Plan: Plan{Interval: time.Second}, Samples: make([]Sample, mostKept)}
	if err := (&collector{data: full}).add(Sample{}); err == nil || len(full.Samples) != mostKept {
		t.Errorf("%d samples, %v", len(full.Samples), err)
	}
	folder := t.TempDir()
	s, _, err := open(folder, longPlan(1), evening)
	if err != nil {
		t.Fatal(err)
	}
	for second := range 3 {
		if err := s.sample(sampleAt(evening.Add(time.Duration(second)*time.Second), "r3", 1, time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	d := &Data{}
	taken := 0
	file, err := os.Open(filepath.Join(folder, samplesFile))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := lines(file, samplesFile, d, func(Sample) error { taken++; return errMost }); !errors.Is(err, errMost) || taken != 1 {
		t.Errorf("%d lines are read, %v", taken, err)
	}
}

// Half a line that a kill left is ended when the soak goes on, counted as lost and reported once; a whole one that
// lacks only its end is not lost, and the data of the folder names the file and the line.
func TestHalfALineIsReported(t *testing.T) {
	folder := t.TempDir()
	plan := longPlan(1)
	write := func(path, text string) {
		t.Helper()
		f, err := os.OpenFile(filepath.Join(folder, path), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	begin := func() (lost float64, log string) {
		t.Helper()
		var b strings.Builder
		s, err := Open(folder, plan, prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&b, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.store.sample(sampleAt(time.Now(), "r3", 7, time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if err := s.store.close(); err != nil {
			t.Fatal(err)
		}
		return testutil.ToFloat64(s.unsaved), b.String()
	}
	if lost, log := begin(); lost != 0 || log != "" {
		t.Errorf("a new folder: %v lost, %s", lost, log)
	}
	write(samplesFile, `{"time":"2026-11-2`)
	write(eventsFile, `{"time":"2026-11-23T22:00:00Z","kind":"phase","name":"whole","what":"begin"}`)
	lost, log := begin()
	if lost != 1 || strings.Count(log, "level=WARN") != 1 || !strings.Contains(log, filepath.Join(folder, samplesFile)) {
		t.Errorf("%v lost, want 1; the log:\n%s", lost, log)
	}
	if lost, log := begin(); lost != 0 || log != "" {
		t.Errorf("logged again: %v lost, %s", lost, log)
	}
	// Longer than any line that is read.
	write(samplesFile, strings.Repeat("\x00", longestLine+10)+"\n")
	if lost, log := begin(); lost != 0 || log != "" {
		t.Errorf("an ended line: %v lost, %s", lost, log)
	}
	d := read(t, folder)
	at := []string{samplesFile + ":2", samplesFile + ":5"}
	if d.Torn != 2 || !slices.Equal(d.TornAt, at) || len(d.Samples) != 4 || len(d.Events) != 1 {
		t.Errorf("%d torn at %q, want 2 at %q; %d samples, want 4; %d events, want 1", d.Torn, d.TornAt, at, len(d.Samples), len(d.Events))
	}
	if want := "2 lines of the soak's folder could not be read: samples.jsonl:2, samples.jsonl:5"; d.Unread() != want {
		t.Errorf("%q, want %q", d.Unread(), want)
	}
	write(samplesFile, strings.Repeat("{\n", 100))
	if d := read(t, folder); d.Torn != 102 || len(d.TornAt) != mostTorn || !strings.HasSuffix(d.Unread(), "samples.jsonl:9 and 97 more") {
		t.Errorf("%d torn: %s", d.Torn, d.Unread())
	}
}

// synced is a file of which it is counted how many bytes were there when it was put on the disk.
type synced struct {
	*os.File
	at []int64
}

func (s *synced) Sync() error {
	info, err := s.Stat()
	if err == nil {
		s.at = append(s.at, info.Size())
	}
	return errors.Join(err, s.File.Sync())
}

// An event is on the disk before what it reports goes on: the beginning of a fault, which the next start has to mend.
func TestEventsAreSynced(t *testing.T) {
	s, _, err := open(t.TempDir(), longPlan(1), evening)
	if err != nil {
		t.Fatal(err)
	}
	on := &synced{File: s.events.on.(*os.File)}
	s.events.on = on
	for n := range 2 {
		if err := s.event(Event{evening, FaultEvent, fmt.Sprint(n), Begin, ""}); err != nil {
			t.Fatal(err)
		}
		info, err := on.Stat()
		if err != nil || len(on.at) != n+1 || on.at[n] != info.Size() || info.Size() == 0 {
			t.Errorf("after %d events synced with %d bytes, of %d (%v)", n+1, on.at, info.Size(), err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}
