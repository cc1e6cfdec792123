package table

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// cellWidth is the width of a column; the first, with the row's name, is wider.
const (
	cellWidth  = 8
	classWidth = 13
	labelWidth = 22
)

// Print shows a table: its title, two heading lines, and a line per row. A table without any
// row is left out.
func Print(w io.Writer, t Table, values Values, classes []string) {
	if len(rows(t, values, classes)) == 0 {
		return
	}
	first := classWidth + labelWidth*(len(t.By)-1)
	if t.Title != "" {
		fmt.Fprintln(w, t.Title)
	}
	header(w, t, first)
	for _, row := range rows(t, values, classes) {
		line := pad(row, first)
		for i, c := range t.Columns {
			v, ok := values[i][row]
			line += padLeft(cell(c.Unit, v, ok), cellWidth)
		}
		fmt.Fprintln(w, line)
	}
}

func header(w io.Writer, t Table, first int) {
	groups := pad("", first)
	titles := pad("class", first)
	for i := 0; i < len(t.Columns); {
		n := 1
		for i+n < len(t.Columns) && t.Columns[i+n].Group == t.Columns[i].Group {
			n++
		}
		groups += centre(t.Columns[i].Group, n*cellWidth)
		for _, c := range t.Columns[i : i+n] {
			titles += padLeft(c.Title, cellWidth)
		}
		i += n
	}
	fmt.Fprintln(w, strings.TrimRight(groups, " "))
	fmt.Fprintln(w, titles)
}

func cell(unit string, v float64, ok bool) string {
	switch {
	case !ok || math.IsNaN(v):
		return "-"
	case unit == "milliseconds":
		return significant(v * 1000)
	case unit == "percent":
		return significant(v * 100)
	case unit == "ratio":
		return significant(v)
	case v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	default:
		return fmt.Sprintf("%.1f", v)
	}
}

// significant prints three significant digits without an exponent.
func significant(v float64) string {
	if v == 0 {
		return "0"
	}
	decimals := 2 - int(math.Floor(math.Log10(math.Abs(v))))
	return fmt.Sprintf("%.*f", min(max(decimals, 0), 3), v)
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 1))
}

func padLeft(s string, width int) string {
	return strings.Repeat(" ", max(width-utf8.RuneCountInString(s), 1)) + s
}

// centre puts a group's name over its columns, between dashes that show how far it reaches.
func centre(s string, width int) string {
	dashes := width - 3 - utf8.RuneCountInString(s)
	if dashes < 2 {
		return padLeft(s, width)
	}
	left := dashes / 2
	return " " + strings.Repeat("-", left) + " " + s + " " + strings.Repeat("-", dashes-left)
}
