package soak

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/outfile"
)

// A day's samples are a file of their own, compressed when the day is over (UTC): samples.jsonl becomes
// samples-DATE.jsonl, and that samples-DATE.jsonl.gz. Killed between, the next start goes on; a .gz is whole, or not
// there.
const (
	daysPattern = "samples-????-??-??.jsonl"
	compressed  = ".gz"
	unfinished  = ".new"
)

// samples appends to the day's file.
type samples struct {
	folder  string
	file    *lineFile
	day     string
	closing sync.WaitGroup // compressions under way
}

func day(t time.Time) string { return t.UTC().Format(time.DateOnly) }

// openSamples goes on with the newest file, whose day is that of its last change.
func openSamples(folder string, now time.Time) (*samples, error) {
	s := &samples{folder: folder, day: day(now)}
	path := filepath.Join(folder, samplesFile)
	if info, err := os.Stat(path); err == nil && info.Size() > 0 {
		s.day = day(info.ModTime())
	}
	var err error
	if s.file, err = appendTo(path); err != nil {
		return nil, err
	}
	left, err := filepath.Glob(filepath.Join(folder, daysPattern))
	if err != nil {
		return nil, errors.Join(err, s.file.close())
	}
	for _, path := range left {
		s.compress(path)
	}
	return s, nil
}

// write appends a line of a moment; that of a new day begins a new file.
func (s *samples) write(line []byte, at time.Time) error {
	var turned error
	if today := day(at); today > s.day {
		// If that fails the old file goes on until the next day.
		turned = s.turn()
		s.day = today
	}
	return errors.Join(turned, s.file.write(line))
}

// turn closes the day's file and opens the next.
func (s *samples) turn() error {
	path := filepath.Join(s.folder, samplesFile)
	old := filepath.Join(s.folder, "samples-"+s.day+".jsonl")
	if exists(old) || exists(old+compressed) {
		return nil // the clock went back and came again: nothing is written over
	}
	if err := os.Rename(path, old); err != nil {
		return err
	}
	next, err := appendTo(path)
	if err != nil {
		// The open file is that one, whatever it is called; it is read under either name.
		return errors.Join(err, os.Rename(old, path))
	}
	err = s.file.close()
	s.file = next
	s.compress(old)
	return err
}

// compress makes a day's file its .gz, beside what goes on. If it cannot, the file stays, and is read as it is.
func (s *samples) compress(path string) {
	s.closing.Go(func() {
		if _, err := os.Stat(path + compressed); err != nil {
			if err := gzipped(path); err != nil {
				os.Remove(path + unfinished)
				return // the next start retries
			}
		}
		os.Remove(path)
	})
}

// gzipped writes a file's .gz, whole or not at all.
func gzipped(path string) (err error) {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.Create(path + unfinished)
	if err != nil {
		return err
	}
	z := gzip.NewWriter(to)
	_, err = io.Copy(z, from)
	if err = errors.Join(err, z.Close(), to.Sync(), to.Close()); err != nil {
		return err
	}
	if err := os.Rename(path+unfinished, path+compressed); err != nil {
		return err
	}
	return outfile.SyncFolder(filepath.Dir(path)) // what it was made of is taken away next
}

// close waits for compressions.
func (s *samples) close() error {
	s.closing.Wait()
	return s.file.close()
}

// samplesFiles are those of a folder in their order; of a day that is compressed its .gz alone.
func samplesFiles(folder string) ([]string, error) {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var files []string
	now := false
	for _, e := range entries { // a .gz comes after what it is made of
		name := e.Name()
		plain, whole := strings.CutSuffix(name, compressed)
		of, err := filepath.Match(daysPattern, plain)
		switch {
		case err != nil:
			return nil, err
		case name == samplesFile:
			now = true
		case of && whole && len(files) > 0 && files[len(files)-1] == filepath.Join(folder, plain):
			files[len(files)-1] = filepath.Join(folder, name)
		case of:
			files = append(files, filepath.Join(folder, name))
		}
	}
	if now {
		files = append(files, filepath.Join(folder, samplesFile))
	}
	return files, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
