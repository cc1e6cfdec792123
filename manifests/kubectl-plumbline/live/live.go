// Package live shows where the time of databases goes, again and again: on a terminal as a screen with keys, elsewhere
// as text.
package live

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"golang.org/x/term"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/why"
)

// View is what is known at one moment.
type View struct {
	At       time.Time
	Window   time.Duration
	Findings []*why.Finding
	// Notes are what the user should read besides; Err is why there are no findings.
	Notes []string
	Err   error
}

// Terminal reports whether a screen can be drawn.
func Terminal(in, out *os.File) bool {
	return term.IsTerminal(int(in.Fd())) && term.IsTerminal(int(out.Fd())) && os.Getenv("TERM") != "dumb"
}

// Show draws views on a terminal until the user quits, the channel is closed or ctx ends.
func Show(ctx context.Context, in, out *os.File, views <-chan View) error {
	p := tea.NewProgram(screen{printer: why.NewPrinter(out)}, tea.WithContext(ctx), tea.WithInput(in), tea.WithOutput(out), tea.WithAltScreen(), tea.WithoutSignalHandler())
	go func() {
		for v := range views {
			p.Send(v)
		}
		p.Quit()
	}()
	if _, err := p.Run(); err != nil && ctx.Err() == nil && !errors.Is(err, tea.ErrInterrupted) {
		return err
	}
	return nil
}

// Print writes views as text, one below the other.
func Print(w io.Writer, views <-chan View) {
	for v := range views {
		s := screen{view: v, printer: why.PlainPrinter(w)}
		fmt.Fprintf(w, "%s\n%s\n", s.title(), strings.TrimRight(s.list(true), "\n"))
	}
}

// The orders beyond those by a layer.
const (
	byTime    = "time"
	byStalled = "stalled"
	byName    = "name"
)

// screen is the state of what is drawn.
type screen struct {
	printer *why.Printer
	view    View
	height  int
	// order is an index of orders; selected the key of the database that the cursor is on.
	order    int
	selected string
	// open means that all is shown of the selected one, from line offset on; paused that later views are dropped.
	open, paused bool
	offset       int
}

// Init implements tea.Model.
func (s screen) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (s screen) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch m := message.(type) {
	case View:
		if !s.paused {
			s.view = m
		}
	case tea.WindowSizeMsg:
		s.height = m.Height // the terminal cuts lines
	case tea.KeyMsg:
		return s.key(m.String())
	}
	return s, nil
}

func (s screen) key(key string) (tea.Model, tea.Cmd) {
	switch key {
	case "q", "ctrl+c":
		return s, tea.Quit
	case "esc", "backspace", "left":
		s.open = false
	case "enter", "right":
		s.open, s.offset = len(s.view.Findings) > 0, 0
	case "up", "k":
		s.move(-1)
	case "down", "j":
		s.move(1)
	case "pgup":
		s.move(-max(1, s.height/2))
	case "pgdown":
		s.move(max(1, s.height/2))
	case "s":
		s.order++
	case "S":
		s.order--
	case " ":
		s.paused = !s.paused
	}
	return s, nil
}

// move moves the cursor, or the text that is open.
func (s *screen) move(by int) {
	if s.open {
		s.offset = max(0, s.offset+by)
		return
	}
	if all := s.sorted(); len(all) > 0 {
		s.selected = key(all[min(max(0, s.cursor(all)+by), len(all)-1)])
	}
}

// key identifies a finding from view to view.
func key(f *why.Finding) string {
	return strings.Join([]string{f.Target.Cluster, f.Target.Node, f.Target.Server, f.Target.Volume}, "\x00")
}

// cursor is the index of the selected finding, 0 if that is gone.
func (s screen) cursor(all []*why.Finding) int {
	return max(0, slices.IndexFunc(all, func(f *why.Finding) bool { return key(f) == s.selected }))
}

// orders are what the findings can be ordered by: their time, what is stalled, their names, or a layer in which one has
// a microsecond or more.
func (s screen) orders() []string {
	var used []string
	for _, f := range s.view.Findings {
		_, _, parts := f.Main()
		for _, l := range parts {
			if l.Seconds >= time.Microsecond.Seconds() && !slices.Contains(used, l.Name) {
				used = append(used, l.Name)
			}
		}
	}
	slices.SortFunc(used, layers.Compare)
	return append([]string{byTime, byStalled, byName}, used...)
}

func (s screen) ordered() string {
	all := s.orders()
	return all[(s.order%len(all)+len(all))%len(all)]
}

// value is what an order sorts by, the largest first.
func value(f *why.Finding, order string) float64 {
	_, mean, parts := f.Main()
	switch order {
	case byTime:
		return mean
	case byStalled:
		switch {
		case f.Stall == nil:
			return -1
		case math.IsNaN(f.Stall.Seconds):
			return 0
		}
		return f.Stall.Seconds
	}
	for _, l := range parts {
		if l.Name == order {
			return l.Seconds
		}
	}
	return 0
}

func (s screen) sorted() []*why.Finding {
	all, order := slices.Clone(s.view.Findings), s.ordered()
	slices.SortStableFunc(all, func(a, b *why.Finding) int {
		if order == byName {
			return strings.Compare(a.Name(), b.Name())
		}
		return cmp.Or(cmp.Compare(value(b, order), value(a, order)), strings.Compare(a.Name(), b.Name()))
	})
	return all
}

// title is the first line.
func (s screen) title() string {
	if s.view.At.IsZero() {
		return "Reading what is measured."
	}
	paused := ""
	if s.paused {
		paused = ", paused"
	}
	return fmt.Sprintf("%s  means of %s, by %s%s", s.view.At.Format("15:04:05"), why.Span(s.view.Window), s.ordered(), paused)
}

// keys is the last line.
const keys = "up, down: select   enter: all of it   esc: back   s, S: order   space: pause   q: quit"

// list is a bar for each finding, with a cursor unless it is all that is printed, and the words of the selected one or
// of all.
func (s screen) list(whole bool) string {
	var b strings.Builder
	for _, n := range s.view.Notes {
		b.WriteString(n + "\n")
	}
	if s.view.Err != nil {
		return b.String() + why.Line(s.view.Err) + "\n"
	}
	all := s.sorted()
	if len(all) == 0 {
		return b.String()
	}
	var bars, words strings.Builder
	s.printer.To(&bars).Stacks(all)
	cursor := s.cursor(all)
	if whole {
		s.printer.To(&words).Words(all...)
		return b.String() + bars.String() + words.String()
	}
	s.printer.To(&words).Words(all[cursor])
	lines := strings.Split(strings.TrimRight(bars.String(), "\n"), "\n")
	for i := range lines {
		mark := "  "
		if i == cursor {
			mark = "> "
		}
		lines[i] = mark + lines[i]
	}
	rows, legend := lines[:len(all)], lines[len(all):]
	// What is around the cursor, where there is no room for all: title, a line apart, words and keys are there, too.
	room := max(1, s.height-5-len(s.view.Notes)-len(legend)-strings.Count(words.String(), "\n"))
	first := min(max(0, cursor-room/2), max(0, len(rows)-room))
	rows = rows[first:min(len(rows), first+room)]
	return b.String() + strings.Join(append(slices.Clone(rows), legend...), "\n") + "\n\n" + words.String()
}

// all is what is known of the selected finding, from the offset on.
func (s screen) all() string {
	found := s.sorted()
	var b strings.Builder
	s.printer.To(&b).Why(found[s.cursor(found)])
	lines := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	room := max(1, s.height-4)
	first := min(s.offset, max(0, len(lines)-room))
	return strings.Join(lines[first:min(len(lines), first+room)], "\n") + "\n"
}

// View implements tea.Model.
func (s screen) View() string {
	if s.view.At.IsZero() {
		return s.title() + "\n\n" + keys
	}
	text := s.list(false)
	if s.open && s.view.Err == nil && len(s.view.Findings) > 0 {
		text = s.all()
	}
	return s.title() + "\n\n" + text + "\n" + keys
}
