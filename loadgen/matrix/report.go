package matrix

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/internal/given"
	"github.com/plumbline/plumbline/loadgen/internal/logged"
	"github.com/plumbline/plumbline/loadgen/result"
)

// mostRounds is how many rounds a matrix may have: each step on each class has room for all of them.
const mostRounds = 1000

// SchemaVersion is that of schema.json, which describes the JSON of a report. It is raised when a field
// goes or means something else.
const SchemaVersion = 1

// Report is a matrix's outcome, with what somebody else needs to judge it.
type Report struct {
	Schema      int         `json:"schema"` // SchemaVersion
	Matrix      string      `json:"matrix"`
	Source      string      `json:"source"`
	Scale       float64     `json:"scale"`
	MaxClients  int         `json:"max_clients"`
	Least       float64     `json:"min_seconds"` // of a run, whatever the scale
	Began       time.Time   `json:"began"`
	Environment Environment `json:"environment"`
	Targets     []Target    `json:"targets"`
	Repeat      int         `json:"repeat"`         // rounds of each step
	Order       string      `json:"order"`          // of the targets in a round
	Seed        uint64      `json:"seed,omitempty"` // of a random order
	Rows        []Row       `json:"rows"`
	Summaries   []Summary   `json:"summaries,omitempty"` // of several rounds
	Classes     []Class     `json:"classes,omitempty"`   // over all steps
}

// Read reads what WriteJSON wrote, also of versions before SchemaVersion, and also from a job's log.
func Read(path string) (*Report, error) {
	text, err := given.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var r Report
	const wanted = "a matrix's result (loadgen matrix --output writes one)"
	if err := given.Decode(text, &r, false, 1); err != nil {
		objects, otherwise := logged.Objects(bytes.NewReader(text))
		switch {
		case len(objects) > 1:
			return nil, fmt.Errorf("%s: there are %d results in it", path, len(objects))
		case len(objects) == 1 && otherwise == nil:
			text = objects[0].Text
			r = Report{}
			err = given.Decode(text, &r, false, objects[0].Line)
		case bytes.Contains(text, []byte("\n{\n")):
			err = otherwise // a log
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w; it is %s, and not %s", path, err, given.What(text), wanted)
		}
	}
	if r.Matrix == "" || len(r.Rows) == 0 {
		return nil, given.NotA(path, text, wanted)
	}
	if r.Schema > SchemaVersion {
		return nil, fmt.Errorf("%s: written by a later version, with schema %d; this one knows %d", path, r.Schema, SchemaVersion)
	}
	if r.Repeat < 0 || r.Repeat > mostRounds {
		return nil, fmt.Errorf("%s: repeat is %d; want 0 to %d", path, r.Repeat, mostRounds)
	}
	for i, row := range r.Rows {
		if most := max(r.Repeat, 1); row.Round < 0 || row.Round > most {
			return nil, fmt.Errorf("%s: rows[%d].round is %d; want 0 to %d, as repeat has it", path, i, row.Round, most)
		}
	}
	if len(r.Classes) == 0 {
		r.sumUpClasses()
	}
	return &r, nil
}

// Environment is the machine and the programs.
type Environment struct {
	CPU         string            `json:"cpu"`
	CPUs        int               `json:"cpus"`
	MemoryBytes uint64            `json:"memory_bytes"`
	Kernel      string            `json:"kernel"`
	Versions    map[string]string `json:"versions"` // of programs, and of servers by storage class
}

// machine is the machine in words; what is not known of it is not a number.
func (e Environment) machine() string {
	cpus, memory := "how many CPUs is not known", "how much memory is not known"
	if e.CPUs > 0 {
		cpus = fmt.Sprintf("%d CPUs (%s)", e.CPUs, e.CPU)
	}
	if e.MemoryBytes > 0 {
		memory = fmt.Sprintf("%.1f GB memory", float64(e.MemoryBytes)/1e9)
	}
	return cpus + ", " + memory
}

// environment finds out what it can; what it cannot is left empty.
func (r *Runner) environment(ctx context.Context, targets []Target) Environment {
	e := Environment{Kernel: r.osRelease(), Versions: map[string]string{}}
	if fs, err := procfs.NewFS(r.ProcFS); err == nil {
		if cpus, err := fs.CPUInfo(); err == nil && len(cpus) > 0 {
			e.CPU, e.CPUs = cpus[0].ModelName, len(cpus)
		}
		if m, err := fs.Meminfo(); err == nil && m.MemTotalBytes != nil {
			e.MemoryBytes = *m.MemTotalBytes
		}
	}
	for name, path := range map[string]string{"fio": r.FIO, "pgbench": r.Pgbench, "sysbench": r.Sysbench} {
		if out, err := exec.CommandContext(ctx, path, "--version").Output(); err == nil {
			e.Versions[name] = strings.TrimSpace(string(out))
		}
	}
	for _, t := range targets {
		if t.Engine != "postgres" || t.DSN == "" {
			continue
		}
		if version := serverVersion(ctx, t.DSN); version != "" {
			e.Versions["server of "+t.StorageClass] = "PostgreSQL " + version
		}
	}
	return e
}

// serverVersion queries a PostgreSQL server's version; "" if it does not answer within windUp.
func serverVersion(ctx context.Context, dsn string) (version string) {
	ctx, stop := context.WithTimeout(ctx, windUp)
	defer stop()
	db, err := adapter.Connect(ctx, dsn)
	if err != nil {
		return ""
	}
	defer db.Close(ctx)
	if db.QueryRow(ctx, "show server_version").Scan(&version) != nil {
		return ""
	}
	return version
}

// Failed is an error if half of the runs or more have failed: how many they are, and what is wrong with the first.
func (r *Report) Failed() error {
	var failed []Row
	for _, row := range r.Rows {
		if row.Error != "" {
			failed = append(failed, row)
		}
	}
	if len(failed) == 0 || 2*len(failed) < len(r.Rows) {
		return nil
	}
	first := failed[0]
	return fmt.Errorf("%d of %s failed; the first, %s on %s: %s", len(failed), plural(len(r.Rows), "run"), first.Step, first.StorageClass, first.Error)
}

// LeastIdle is kbench's rule: with a smaller share of CPU time idle the machine and not the storage is measured.
const LeastIdle = 0.4

// Limits of the checks.
const (
	leastMeasured = 60 * time.Second
	leastSamples  = 1000 // ten beyond the 99th percentile
	sizeFactor    = 25   // kbench's rule: the file must be this many seconds of bandwidth
	accountsMB    = 13   // of pgbench_accounts, for each unit of its scale
	betterThan    = 0.9  // of the local disk's latency, to be suspicious
)

// turn is one round of a step, in which each class has a row.
type turn struct {
	step  string
	round int
}

func (row *Row) turn() turn { return turn{row.Step, row.Round} }

// judge notes in each row what makes it doubtful.
func (r *Report) judge() {
	local := map[turn]*Row{}
	for i := range r.Rows {
		for _, t := range r.Targets {
			if t.Local && t.StorageClass == r.Rows[i].StorageClass {
				local[r.Rows[i].turn()] = &r.Rows[i]
			}
		}
	}
	for i := range r.Rows {
		row := &r.Rows[i]
		if row.Result == nil {
			continue
		}
		doubt := func(format string, a ...any) { row.Doubts = append(row.Doubts, fmt.Sprintf(format, a...)) }
		if row.CPUIdle < LeastIdle {
			doubt("generator saturated: CPUs only %.0f %% idle", row.CPUIdle*100)
		}
		if row.Result.Seconds < leastMeasured.Seconds()*0.99 {
			doubt("run too short: %.0f s", row.Result.Seconds)
		}
		if row.Result.Completed < leastSamples {
			doubt("too few samples for a p99: %d", row.Result.Completed)
		}
		if f := row.step.FIO; f != nil {
			if size := float64(f.SizeMiB*f.Jobs) * 1.048576; size < sizeFactor*row.MBPerSecond {
				doubt("cache suspected: %.0f MB of files are only %.1f s of this bandwidth", size, size/row.MBPerSecond)
			}
		}
		if s := row.step.Scan; s != nil {
			if size := float64(s.Scale) * accountsMB; size*1e6 < float64(r.Environment.MemoryBytes) {
				doubt("cache suspected: a table of %.0f MB fits into memory", size)
			}
		}
		if l := local[row.turn()]; l != nil && l != row && l.Result != nil && row.Result.Service.Mean < betterThan*l.Result.Service.Mean {
			if row.step.reads() {
				doubt("cache suspected: faster than the local disk")
			} else {
				doubt("not crash-consistent? faster than the local disk")
			}
		}
		if n := row.Result.Restarts + row.Result.ParseErrors + row.Result.Lost; n > 0 {
			doubt("%d restarts, %d lines not understood, %d lost", row.Result.Restarts, row.Result.ParseErrors, row.Result.Lost)
		}
		for kind, n := range row.Result.Errors {
			doubt("%d errors (%s)", n, kind)
		}
	}
}

// perSecond prints a rate with the digits that matter: a scan that takes a minute is not 0 a second.
func perSecond(rate float64) string {
	if rate >= 100 || rate == 0 {
		return fmt.Sprintf("%.0f", rate)
	}
	return fmt.Sprintf("%.3g", rate)
}

// limitWords is a row's limit, and why it is unknown.
func (row *Row) limitWords() string {
	if row.Limit == nil {
		return limitUnknown
	}
	if row.Limit.What == limitUnknown {
		return limitUnknown + ": " + row.Limit.Because
	}
	return fmt.Sprintf("%s (%s)", row.Limit.What, row.Limit.Because)
}

// reads reports whether a step only reads.
func (s Step) reads() bool {
	return s.Scan != nil || s.FIO != nil && (s.FIO.RW == "read" || s.FIO.RW == "randread")
}

// WriteJSON writes the report as one indented JSON object.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteMarkdown writes the report as a page with a table.
func (r *Report) WriteMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "## Matrix %s\n\n%s\n\n", r.Matrix, r.Source)
	if r.Scale < 1 {
		fmt.Fprintf(&b, "**Scaled to %g of the published sizes and times (at least %g s a run), at most %d clients: figures are not comparable with the published ones, orderings may be.**\n\n",
			r.Scale, r.Least, r.MaxClients)
	}
	e := r.Environment
	fmt.Fprintf(&b, "%s. %s, Linux %s", r.Began.Format("2006-01-02 15:04 UTC"), e.machine(), cmp.Or(e.Kernel, "of an unknown version"))
	for _, name := range slices.Sorted(maps.Keys(e.Versions)) {
		fmt.Fprintf(&b, "; %s: %s", name, e.Versions[name])
	}
	b.WriteString(".\n\n")
	for _, t := range r.Targets {
		fmt.Fprintf(&b, "- %s: %s%s\n", t.StorageClass, copies(t.Replicas), map[bool]string{true: ", the local disk the others are compared with"}[t.Local])
	}
	b.WriteString("\n| step | storage class | per second | MB/s | mean | p50 | p99 | to local | limit | doubts |\n|---|---|---:|---:|---:|---:|---:|---:|---|---|\n")
	local := map[turn]float64{}
	for _, row := range r.Rows {
		for _, t := range r.Targets {
			if t.Local && t.StorageClass == row.StorageClass && row.Result != nil {
				local[row.turn()] = row.Result.Service.Mean
			}
		}
	}
	for _, row := range r.Rows {
		switch {
		case row.Error != "":
			fmt.Fprintf(&b, "| %s | %s | failed | | | | | | | %s |\n", row.Step, row.StorageClass, strings.ReplaceAll(row.Error, "\n", "; "))
			continue
		case row.Result == nil:
			var phases []string
			total := 0.0
			for _, p := range row.Phases {
				phases = append(phases, fmt.Sprintf("%s %.2f s", p.Name, p.Seconds))
				total += p.Seconds
			}
			took := fmt.Sprintf("%.2f s", total)
			if len(phases) == 0 {
				took = "-" // pgbench did not report it
			}
			fmt.Fprintf(&b, "| %s | %s | | | %s | | | | | %s |\n", row.Step, row.StorageClass, took, strings.Join(phases, ", "))
			continue
		}
		l, bandwidth, ratio := row.Result.Service, "", ""
		if row.MBPerSecond > 0 {
			bandwidth = fmt.Sprintf("%.1f", row.MBPerSecond)
		}
		if m := local[row.turn()]; m > 0 {
			ratio = fmt.Sprintf("%.2f", l.Mean/m)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", row.Step, row.StorageClass, perSecond(row.Result.Rate), bandwidth,
			result.Milliseconds(l.Mean), result.Milliseconds(l.Quantile(0.5)), result.Milliseconds(l.Quantile(0.99)), ratio, row.limitWords(), strings.Join(row.Doubts, "; "))
		if row.Sync != nil {
			fmt.Fprintf(&b, "| %s: fdatasync | %s | | | %s | %s | %s | | | |\n", row.Step, row.StorageClass,
				result.Milliseconds(row.Sync.Mean), result.Milliseconds(row.Sync.Quantile(0.5)), result.Milliseconds(row.Sync.Quantile(0.99)))
		}
	}
	b.WriteString("\nTo local: mean latency as a multiple of the local disk's. Limit: what kept the run from being faster, as far as it was recorded.\n")
	b.WriteString(r.summaryTable())
	_, err := io.WriteString(w, b.String())
	return err
}
