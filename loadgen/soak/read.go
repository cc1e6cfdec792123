package soak

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/given"
)

// most is how many samples are read at the most, phases apart: three classes for four days in intervals of 10 s. A soak
// of more is read in longer intervals: counts and times are added up, and none is lost.
const most = 100_000

// rereads is how often a folder is read anew because a file got another name meanwhile.
const rereads = 5

// mostKept is how many samples, and how many events, are kept of a folder at the most. No soak comes near.
const mostKept = 20 * most

// errMost is the error of a file that has more.
var errMost = fmt.Errorf("more than %d samples or events; the rest is left out", mostKept)

// mostTorn is how many lines that cannot be read are named.
const mostTorn = 5

// longestLine is that of a sample with every slot of its distributions in use.
const longestLine = 4 << 20

// Data is all a soak has kept in its folder.
type Data struct {
	Began   time.Time
	Plan    Plan
	Samples []Sample
	// Every is the interval of the samples: the plan's, or a multiple of it.
	Every time.Duration
	// Events are those of the folder, and the ends of phases in which the soak was killed, without starts after its
	// end.
	Events []Event
	// Torn is how many lines could not be read, such as the last of a killed soak; TornAt are the first of them, as
	// file:line.
	Torn   int
	TornAt []string
	// Damaged are why files could not be read to their ends.
	Damaged []error
}

// Unread describes how many lines could not be read, and which.
func (d *Data) Unread() string {
	more := ""
	if n := d.Torn - len(d.TornAt); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("%d lines of the soak's folder could not be read: %s%s", d.Torn, strings.Join(d.TornAt, ", "), more)
}

// Read reads a soak's folder, at any time.
func Read(folder string) (*Data, error) { return ReadEvery(folder, 0) }

// ReadEvery reads it in intervals of at least so long.
func ReadEvery(folder string, every time.Duration) (*Data, error) {
	d, err := readState(folder)
	if err != nil {
		return nil, err
	}
	d.Every = d.Plan.Interval
	if n := max(d.Plan.Duration*time.Duration(len(d.Plan.Targets))/most, every); d.Every > 0 && n > d.Every {
		d.Every *= (n + d.Every - 1) / d.Every
	}
	for range rereads {
		files, err := samplesFiles(folder)
		if err != nil {
			return nil, err
		}
		c := collector{data: d, open: map[[2]string]*Sample{}}
		before := *d
		for _, file := range files {
			if err = c.read(file); err == nil {
				continue
			}
			if err = fmt.Errorf("%s: %w", file, err); errors.Is(err, fs.ErrNotExist) {
				break
			}
			// What of a day's file is damaged costs the rest of that day, and no other.
			d.Damaged = append(d.Damaged, err)
			err = nil
		}
		now, listed := samplesFiles(folder)
		switch {
		case listed != nil:
			return nil, listed
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return nil, err
		case err == nil && slices.Equal(now, files):
			c.end()
			d.endKilled()
			d.endOver()
			return d, nil
		}
		*d = before // a day has just ended, and its file has another name
	}
	return nil, fmt.Errorf("%s: its files have other names at each read", folder)
}

// readState reads all but the samples.
func readState(folder string) (*Data, error) {
	path := filepath.Join(folder, stateFile)
	text, err := given.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var s state
	if err := given.Decode(text, &s, false, 1); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if s.Began.IsZero() || s.Plan.Interval <= 0 {
		return nil, given.NotA(path, text, "a soak's (began or plan.interval is missing)")
	}
	d := &Data{Began: s.Began, Plan: s.Plan}
	file, err := os.Open(filepath.Join(folder, eventsFile))
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	err = lines(file, eventsFile, d, func(e Event) error {
		if len(d.Events) >= mostKept {
			return errMost
		}
		d.Events = append(d.Events, e)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file.Name(), err)
	}
	return d, nil
}

// collector puts samples together that end in the same interval.
type collector struct {
	data *Data
	open map[[2]string]*Sample // by load and class
}

func (c *collector) read(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	var from io.Reader = file
	if filepath.Ext(path) == ".gz" {
		if from, err = gzip.NewReader(file); err != nil {
			return err
		}
	}
	return lines(from, filepath.Base(path), c.data, c.add)
}

func (c *collector) add(s Sample) error {
	if len(c.data.Samples)+len(c.open) >= mostKept {
		return errMost
	}
	if c.data.Every == c.data.Plan.Interval {
		c.data.Samples = append(c.data.Samples, s)
		return nil
	}
	key := [2]string{s.Load, s.StorageClass}
	o := c.open[key]
	if o != nil && (c.interval(o.Time) != c.interval(s.Time) || c.apart(o.Time, s.Time)) {
		c.keep(o)
		o = nil
	}
	if o == nil {
		c.open[key] = &s
		return nil
	}
	o.Time = s.Time
	o.Offered, o.Completed, o.Failed, o.Skipped = o.Offered+s.Offered, o.Completed+s.Completed, o.Failed+s.Failed, o.Skipped+s.Skipped
	o.Saturated = o.Saturated || s.Saturated
	o.Response.Merge(&s.Response)
	o.Service.Merge(&s.Service)
	o.Outages = append(o.Outages, s.Outages...)
	return nil
}

func (c *collector) keep(s *Sample) {
	s.Response.Pack()
	s.Service.Pack()
	c.data.Samples = append(c.data.Samples, *s)
}

// apart reports whether the soak was started again between two moments: what was before is not put together with what
// comes after.
func (c *collector) apart(from, to time.Time) bool {
	return slices.ContainsFunc(c.data.Events, func(e Event) bool {
		return e.Kind == SoakEvent && e.What == Begin && e.Time.After(from) && e.Time.Before(to)
	})
}

// interval is the number of the interval in which a sample ends; its own time is at the end of one.
func (c *collector) interval(t time.Time) time.Duration {
	return (t.Sub(c.data.Began) - 1) / c.data.Every
}

// end adds what is still open, and puts all in order.
func (c *collector) end() {
	for _, o := range c.open {
		c.keep(o)
	}
	slices.SortStableFunc(c.data.Samples, func(a, b Sample) int { return a.Time.Compare(b.Time) })
}

// lines calls take with each line's value, until it fails; those that cannot be read are counted, the first with the
// file's name.
func lines[T any](from io.Reader, name string, d *Data, take func(T) error) error {
	r := bufio.NewReaderSize(from, 64<<10)
	var line []byte
	for number := 1; ; number++ {
		line = line[:0]
		part, err := r.ReadSlice('\n')
		for ; err == bufio.ErrBufferFull; part, err = r.ReadSlice('\n') {
			// Of one that is too long no more is kept than shows that it is.
			line = append(line, part[:min(len(part), longestLine+1-len(line))]...)
		}
		if err != nil && err != io.EOF {
			return err
		}
		line = append(line, part...)
		var one T
		switch {
		case len(bytes.TrimSpace(line)) == 0:
		case len(line) > longestLine || json.Unmarshal(line, &one) != nil:
			if d.Torn++; len(d.TornAt) < mostTorn {
				d.TornAt = append(d.TornAt, fmt.Sprintf("%s:%d", name, number))
			}
		default:
			if err := take(one); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
	}
}
