package live

import (
	"errors"
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// view has the servers of a lab of which r3 has a slow replica.
func view(t *testing.T) View {
	t.Helper()
	lab := whytest.Healthy()
	lab.Trip["r3-2"], lab.Device["r3"], lab.Commit["r3"]["sync"] = 11, 14, 15
	v := View{At: whytest.End, Window: 20 * time.Second}
	for _, server := range []string{"local", "r1", "r3"} {
		f, err := why.Find(t.Context(), lab.Record(), why.Subject{Server: server}, whytest.End, v.Window)
		if err != nil {
			t.Fatal(err)
		}
		v.Findings = append(v.Findings, f)
	}
	return v
}

// typed is a screen after messages: views, sizes, and names of keys.
func typed(t *testing.T, messages ...any) screen {
	t.Helper()
	var model tea.Model = screen{printer: why.PlainPrinter(nil), height: 40}
	for _, m := range messages {
		if name, ok := m.(string); ok {
			named := map[string]tea.KeyType{"up": tea.KeyUp, "down": tea.KeyDown, "enter": tea.KeyEnter, "esc": tea.KeyEsc, "pgdown": tea.KeyPgDown, " ": tea.KeySpace}
			key := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune(name)}
			if kind, ok := named[name]; ok {
				key = tea.KeyMsg{Type: kind}
				if kind == tea.KeySpace {
					key.Runes = []rune(" ")
				}
			}
			m = key
		}
		model, _ = model.Update(m)
	}
	return model.(screen)
}

// names are the servers in the order in which they are listed, that of the cursor marked.
func names(s screen) string {
	var all []string
	for line := range strings.Lines(s.View()) {
		if f := strings.Fields(strings.TrimPrefix(line, ">")); strings.Contains(line, " |") && len(f) > 0 {
			all = append(all, line[:1]+f[0])
		}
	}
	return strings.Join(all, ",")
}

// The databases are listed by time, with the words of the one that the cursor is on; keys move the cursor, change the
// order, and open one.
func TestScreen(t *testing.T) {
	v := view(t)
	const stands = "replica r3-2 stands out"
	for _, c := range []struct {
		keys  []any
		names string
		words string
	}{
		{nil, ">r3, r1, local", stands},
		{[]any{"down"}, " r3,>r1, local", "r1 commits take"},
		{[]any{"down", "down", "down"}, " r3, r1,>local", "(the control)"},
		{[]any{"j", "k", "up"}, ">r3, r1, local", stands},
		{[]any{"s", "s"}, ">local, r1, r3", "by name"},
		{[]any{"s", "s", "S", "S"}, ">r3, r1, local", "by time"},
		{[]any{"S"}, ">r1, r3, local", "by disk"},
		{[]any{"down", "s", "s"}, " local,>r1, r3", "r1 commits take"},
		{[]any{"enter"}, "", "round trip"},
		{[]any{"enter", "esc"}, ">r3, r1, local", stands},
		{[]any{"down", "enter", "pgdown", "pgdown", "pgdown", "pgdown"}, "", "control local"},
	} {
		s := typed(t, append([]any{v}, c.keys...)...)
		if got := names(s); got != c.names || !strings.Contains(strings.Join(strings.Fields(s.View()), " "), c.words) {
			t.Errorf("%v: %s, want %s with %q in:\n%s", c.keys, got, c.names, c.words, s.View())
		}
	}
	for _, key := range []tea.KeyMsg{{Type: tea.KeyRunes, Runes: []rune("q")}, {Type: tea.KeyCtrlC}} {
		if _, quit := typed(t, v).Update(key); quit == nil {
			t.Errorf("%s does not quit", key)
		}
	}
}

// A screen that is too low shows what is around the cursor, and never more lines than it has.
func TestScreenIsLow(t *testing.T) {
	v := view(t)
	for height := 12; height < 30; height++ {
		for _, keys := range [][]any{nil, {"down", "down"}, {"enter"}, {"enter", "pgdown"}} {
			s := typed(t, append([]any{v, tea.WindowSizeMsg{Width: 120, Height: height}}, keys...)...)
			if n := strings.Count(s.View(), "\n") + 1; n > height {
				t.Errorf("%d lines on %d:\n%s", n, height, s.View())
			}
			if got := names(s); len(keys) == 2 && keys[0] == "down" && !strings.Contains(got, ">local") {
				t.Errorf("the cursor is not on the screen: %s", got)
			}
		}
	}
}

// A paused screen stays; an error, notes and the beginning are shown; a database that has gone leaves the cursor above.
func TestScreenChanges(t *testing.T) {
	v := view(t)
	fewer := v
	fewer.Findings = v.Findings[:2]
	if got := names(typed(t, v, " ", fewer)); got != ">r3, r1, local" {
		t.Errorf("paused: %s", got)
	}
	if got := names(typed(t, v, " ", fewer, " ", fewer)); got != ">r1, local" {
		t.Errorf("no longer paused: %s", got)
	}
	failed := typed(t, v, View{At: v.At, Err: errors.New("Prometheus\x1b[2J is away"), Notes: []string{"a note"}})
	if text := failed.View(); !strings.Contains(text, "Prometheus?[2J is away") || !strings.Contains(text, "a note") || names(failed) != "" {
		t.Errorf("%q", text)
	}
	if text := typed(t).View(); !strings.Contains(text, "Reading") {
		t.Errorf("%q", text)
	}
	if text := typed(t, "enter", "down", "s").View(); !strings.Contains(text, "Reading") {
		t.Errorf("%q", text)
	}
}

// Where there is no terminal, each view is text.
func TestPrint(t *testing.T) {
	views := make(chan View, 3)
	views <- view(t)
	views <- View{At: whytest.End, Err: errors.New("away")}
	close(views)
	var b strings.Builder
	Print(&b, views)
	for _, want := range []string{"means of 20 s", "replica r3-2 stands out", "r1 commits take", "away\n"} {
		if !strings.Contains(strings.Join(strings.Fields(b.String()), " ")+"\n", strings.TrimRight(want, "\n")) {
			t.Errorf("%q is not in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), keys) || strings.Contains(b.String(), "\x1b") {
		t.Errorf("%q", b.String())
	}
}
