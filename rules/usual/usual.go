// Package usual is the one table of what an operation of a volume usually takes, by storage backend, replicas and class
// of disk and network, each row with its source and date, and compares a measured mean with it. docs/usual.md is the
// table for readers. It compares and judges nothing: verdicts are those of the rules.
package usual

import "slices"

// Operation is a kind of operation.
type Operation string

// The operations: Write and Read are single requests to the volume's block device, Sync is one fdatasync of a page or a
// record.
const (
	Write Operation = "write"
	Sync  Operation = "sync"
	Read  Operation = "read"
)

// Verdict is how a mean compares with what is usual.
type Verdict string

// The verdicts. Unknown is that of a volume without a row.
const (
	Normal  Verdict = "normal"
	Slow    Verdict = "slow"
	Fast    Verdict = "fast"
	Unknown Verdict = "unknown"
)

// Range is the smallest and the largest published mean, in milliseconds, of one request at a time or a few. If the
// smallest is 0, the largest is a bound that the source names: a maker's promise, a 99th percentile, or a transaction
// that the operation is part of. The zero value is no figure.
type Range [2]float64

// Slack is how many times smaller or larger than the published means a mean may be and is still usual: other machines
// than the published ones do as much with the same disks, and more than one request at a time. A bound has no slack
// above it.
const Slack = 2

// usual returns from how many seconds to how many is usual.
func (r Range) usual() (low, high float64) {
	if r[0] == 0 {
		return 0, r[1] / 1000
	}
	return r[0] / Slack / 1000, r[1] * Slack / 1000
}

// Row is one class of disk and network of storage backends.
type Row struct {
	// Backends are values of the label backend. Replicas is 0 if their number makes no difference or is not published;
	// a backend's rows are in its order.
	Backends []string
	Replicas int
	// Disk and Network are the class; Network is empty if there is none or it is not published.
	Disk, Network     string
	Write, Sync, Read Range
	// Sources are where the figures were read.
	Sources []Source
}

// Of returns the row's range of an operation.
func (r Row) Of(o Operation) Range {
	return map[Operation]Range{Write: r.Write, Sync: r.Sync, Read: r.Read}[o]
}

// Source is where figures were published, and when.
type Source struct{ Title, Date, URL string }

// Volume is what is known of a volume.
type Volume struct {
	// Backend is the value of its label backend. Replicas is 0 if it has none or their number is not known.
	Backend  string
	Replicas int
	// Solid is set if its own device is known not to rotate. One that reports rotation may be a virtual disk.
	Solid bool
}

// Comparison compares the mean of an operation, in seconds, with what is usual.
type Comparison struct {
	Operation Operation
	Seconds   float64
	Volume    Volume
	// Verdict is Slow or Fast only if the mean is so for each candidate.
	Verdict    Verdict
	Candidates []Candidate
}

// Candidate is a class that the volume may be of: which one is not known. Low and High are in seconds.
type Candidate struct {
	Row
	Low, High float64
	Verdict   Verdict
}

// Compare compares the mean of an operation of a volume, in seconds, with the table. What is usual with more replicas
// is a bound for fewer, unless these have a row of the same disks.
func Compare(v Volume, o Operation, seconds float64) Comparison {
	c := Comparison{Operation: o, Seconds: seconds, Volume: v, Verdict: Unknown}
	for _, r := range Table {
		fewer := v.Replicas != 0 && v.Replicas < r.Replicas
		other := !slices.Contains(r.Backends, v.Backend) || r.Replicas != 0 && v.Replicas > r.Replicas ||
			fewer && slices.ContainsFunc(c.Candidates, func(known Candidate) bool { return known.Disk == r.Disk })
		if other || r.Of(o) == (Range{}) || v.Solid && r.Disk == rotating {
			continue
		}
		low, high := r.Of(o).usual()
		if fewer {
			low = 0
		}
		one := Candidate{r, low, high, Normal}
		switch {
		case seconds > high:
			one.Verdict = Slow
		case seconds < low:
			one.Verdict = Fast
		}
		c.Candidates = append(c.Candidates, one)
		if c.Verdict == Unknown {
			c.Verdict = one.Verdict
		} else if c.Verdict != one.Verdict {
			c.Verdict = Normal
		}
	}
	return c
}
