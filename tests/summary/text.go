package main

import (
	"fmt"
	"strings"
)

const (
	// longestLine is how many bytes of a line are kept.
	longestLine = 500
	// alike is how many lines that differ in their numbers only are kept of a program's chatter.
	alike = 3
)

// bound is how many lines are kept: the first ones, which say what was being done, and the last, which say how it ended.
type bound struct{ first, last int }

var (
	// kept is what is held of each test, and printed where its package ends.
	kept = bound{500, 1500}
	// repeated is what is printed once more at the end.
	repeated = bound{50, 150}
)

// line is one line of output and how many like it came and were left out.
type line struct {
	text string
	more int
}

// text is the output of a test or package, bounded. What the test itself says is kept; lines of chatter that differ in their numbers only are counted.
type text struct {
	partial strings.Builder
	first   []*line
	last    []*line
	dropped int
	// chatter is how often a line without its numbers came, and the line behind which such are counted.
	chatter map[string]*seen
	// crashed tells that what follows are stacks: there all lines count.
	crashed bool
}

type seen struct {
	times int
	at    *line
}

// write takes a piece of output, which need not end where a line does.
func (t *text) write(s string) {
	for {
		before, after, found := strings.Cut(s, "\n")
		t.partial.WriteString(before)
		if !found {
			return
		}
		t.add(t.partial.String())
		t.partial.Reset()
		s = after
	}
}

// flush ends a line that is open.
func (t *text) flush() {
	if t.partial.Len() > 0 {
		t.write("\n")
	}
}

func (t *text) add(s string) {
	for _, mark := range []string{"=== RUN ", "=== PAUSE ", "=== CONT ", "=== NAME "} {
		if strings.HasPrefix(s, mark) {
			return
		}
	}
	t.crashed = t.crashed || strings.HasPrefix(s, "panic: ") || strings.HasPrefix(s, "fatal error: ") || strings.HasPrefix(s, "goroutine ")
	if len(s) > longestLine {
		s = fmt.Sprintf("%s ... (%d bytes more)", strings.ToValidUTF8(s[:longestLine], ""), len(s)-longestLine)
	}
	l := &line{text: s}
	// The test's own messages are indented, see testing.T's Log.
	if !t.crashed && !strings.HasPrefix(s, "    ") {
		k := numberless(s)
		if t.chatter == nil {
			t.chatter = map[string]*seen{}
		}
		c := t.chatter[k]
		if c == nil {
			c = &seen{}
			t.chatter[k] = c
		}
		if c.times++; c.times > alike {
			c.at.more++
			return
		}
		c.at = l
	}
	if len(t.first) < kept.first {
		t.first = append(t.first, l)
		return
	}
	if t.last = append(t.last, l); len(t.last) >= 2*kept.last {
		t.dropped += len(t.last) - kept.last
		t.last = append([]*line(nil), t.last[len(t.last)-kept.last:]...)
	}
}

// numberless is a line without its digits.
func numberless(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, s)
}

// lines renders the output within a bound.
func (t *text) lines(b bound) []string {
	all := append(append([]*line(nil), t.first...), t.last...)
	gap, dropped := len(t.first), t.dropped
	if over := len(all) - b.first - b.last; over > 0 {
		all = append(append([]*line(nil), all[:b.first]...), all[len(all)-b.last:]...)
		gap, dropped = b.first, dropped+over
	}
	var out []string
	for i, l := range all {
		if i == gap && dropped > 0 {
			out = append(out, fmt.Sprintf("... %d lines left out ...", dropped))
		}
		out = append(out, l.text)
		if l.more > 0 {
			out = append(out, fmt.Sprintf("... %d more lines like this but for numbers, left out ...", l.more))
		}
	}
	return out
}
