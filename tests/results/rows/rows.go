// Package rows keeps what the proofs measured: rows of figures, each with the run that gave
// it, as JSON lines. The program in the folder above makes a page of them.
package rows

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Cell is one figure of a row, with its unit, under the heading of its column.
type Cell struct {
	Column string `json:"column"`
	Value  string `json:"value"`
}

// Row is one line of a section's table.
type Row struct {
	Section string `json:"section"`
	// What names the row; a later run's row of the same name takes its place.
	What  string `json:"what"`
	Cells []Cell `json:"cells,omitempty"`
	Run   Run    `json:"run"`
	// Gone means that the row of an earlier run by this name is no longer valid.
	Gone bool `json:"gone,omitempty"`
}

// Run is when, where and by which command rows were measured.
type Run struct {
	Began   time.Time `json:"began"`
	Command string    `json:"command"`
	Machine Machine   `json:"machine"`
	// LoadBefore and LoadAfter are the machine's load averages of 1, 5 and 15 minutes.
	LoadBefore string `json:"load_before"`
	LoadAfter  string `json:"load_after"`
}

// File collects the rows of one run of a command.
type File struct {
	path string
	run  Run
	rows []Row
}

// Open begins a run whose rows go to folder/name.jsonl. The command is what to type to get
// them again.
func Open(folder, name, command string) (*File, error) {
	machine, err := ThisMachine("/proc")
	if err != nil {
		return nil, err
	}
	load, err := loadAverage("/proc")
	if err != nil {
		return nil, err
	}
	return &File{path: filepath.Join(folder, name+".jsonl"),
		run: Run{Began: time.Now().UTC().Truncate(time.Second), Command: command, Machine: machine, LoadBefore: load}}, nil
}

// OpenProgram begins the run of the program in tests/name as it was called.
func OpenProgram(folder, name string) (*File, error) {
	return Open(folder, name, Command(name))
}

// Command is how the program in tests/name was called.
func Command(name string) string {
	return strings.Join(append([]string{"go run ./tests/" + name}, os.Args[1:]...), " ")
}

// Add adds a row; cells are column and value by turns.
func (f *File) Add(section, what string, cells ...string) {
	r := Row{Section: section, What: what}
	for i := 0; i+1 < len(cells); i += 2 {
		r.Cells = append(r.Cells, Cell{cells[i], cells[i+1]})
	}
	f.rows = append(f.rows, r)
}

// Drop takes a row of an earlier run away, such as that of an error that is over.
func (f *File) Drop(section, what string) {
	f.rows = append(f.rows, Row{Section: section, What: what, Gone: true})
}

// Close writes the run's rows. Those of earlier runs that this one did not measure again
// stay, with their own date.
func (f *File) Close() error {
	load, err := loadAverage("/proc")
	if err != nil {
		return err
	}
	f.run.LoadAfter = load
	for i := range f.rows {
		f.rows[i].Run = f.run
	}
	old, err := readIfThere(f.path)
	if err != nil {
		return err
	}
	return write(f.path, merge(old, f.rows))
}

// Keep puts rows into a file: each in the place of the old one of its name, or at the end; a row
// that is gone only takes the old one away.
func Keep(path string, new []Row) error {
	old, err := readIfThere(path)
	if err != nil {
		return err
	}
	return write(path, slices.DeleteFunc(merge(old, new), func(r Row) bool { return r.Gone }))
}

func readIfThere(path string) ([]Row, error) {
	rows, err := Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return rows, err
}

// merge puts each new row in the place of the old one of its name, or at the end.
func merge(old, new []Row) []Row {
	merged := slices.Clone(old)
	for _, r := range new {
		i := slices.IndexFunc(merged, func(o Row) bool { return o.Section == r.Section && o.What == r.What })
		if i < 0 {
			merged = append(merged, r)
		} else {
			merged[i] = r
		}
	}
	return merged
}

func write(path string, rows []Row) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	unfinished, err := os.Create(path + ".new")
	if err != nil {
		return err
	}
	e := json.NewEncoder(unfinished)
	e.SetEscapeHTML(false)
	for _, r := range rows {
		err = errors.Join(err, e.Encode(r))
	}
	if err := errors.Join(err, unfinished.Close()); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// Read returns a file's rows.
func Read(path string) ([]Row, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows []Row
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for n := 1; lines.Scan(); n++ {
		var r Row
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s, line %d: %w", path, n, err)
		}
		if r.Section == "" || r.What == "" {
			return nil, fmt.Errorf("%s, line %d: a row needs section and what", path, n)
		}
		rows = append(rows, r)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return rows, nil
}
