package paired

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// Transactions are the moments at which pgbench's transactions ended, from the files that its --log writes.
type Transactions struct {
	pattern string
	files   map[string]*logFile
}

// logFile is what was read of the log of one of pgbench's threads.
type logFile struct {
	offset int64
	rest   []byte  // of a line whose end was not there yet
	ends   []int64 // in microseconds since 1970
}

// TransactionsOf reads the files with a prefix.
func TransactionsOf(prefix string) *Transactions {
	return &Transactions{prefix + "*", map[string]*logFile{}}
}

// Read takes in what was written since the last call. Until is the moment up to which all files are
// complete: pgbench writes many lines at once.
func (t *Transactions) Read() (until time.Time, err error) {
	names, err := filepath.Glob(t.pattern)
	if err != nil {
		return until, err
	}
	for i, name := range names {
		f := t.files[name]
		if f == nil {
			f = &logFile{}
			t.files[name] = f
		}
		if err := f.read(name); err != nil {
			return until, err
		}
		last := time.Time{}
		if len(f.ends) > 0 {
			last = time.UnixMicro(f.ends[len(f.ends)-1])
		}
		if i == 0 || last.Before(until) {
			until = last
		}
	}
	return until, nil
}

func (f *logFile) read(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(f.offset, io.SeekStart); err != nil {
		return err
	}
	text, err := io.ReadAll(file)
	if err != nil {
		return err
	}
	f.offset += int64(len(text))
	text = append(f.rest, text...)
	for {
		line, rest, whole := bytes.Cut(text, []byte("\n"))
		if !whole {
			f.rest = slices.Clone(text)
			return nil
		}
		end, err := endOf(line)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f.ends = append(f.ends, end)
		text = rest
	}
}

// endOf is the moment of a line: the fifth field has its seconds and the sixth its microseconds.
func endOf(line []byte) (int64, error) {
	fields := bytes.Fields(line)
	if len(fields) < 6 {
		return 0, fmt.Errorf("pgbench's log has a line %q", line)
	}
	seconds, err := strconv.ParseInt(string(fields[4]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("pgbench's log has a line %q: %w", line, err)
	}
	us, err := strconv.ParseInt(string(fields[5]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("pgbench's log has a line %q: %w", line, err)
	}
	return seconds*1e6 + us, nil
}

// Count is how many ended in a slot.
func (t *Transactions) Count(s Slot) (n int) {
	for _, f := range t.files {
		first, _ := slices.BinarySearch(f.ends, s.From.UnixMicro())
		after, _ := slices.BinarySearch(f.ends, s.To.UnixMicro())
		n += after - first
	}
	return n
}
