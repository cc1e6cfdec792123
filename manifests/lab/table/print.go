package table

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

// cellWidth is the width of a column; the first, with the class's name, is wider.
const (
	cellWidth  = 8
	classWidth = 13
)

// Header prints the two heading lines.
func Header(w io.Writer, columns []Column) {
	groups := strings.Builder{}
	titles := strings.Builder{}
	groups.WriteString(pad("", classWidth))
	titles.WriteString(pad("class", classWidth))
	for i := 0; i < len(columns); {
		n := 1
		for i+n < len(columns) && columns[i+n].Group == columns[i].Group {
			n++
		}
		groups.WriteString(centre(columns[i].Group, n*cellWidth))
		for _, c := range columns[i : i+n] {
			titles.WriteString(padLeft(c.Title, cellWidth))
		}
		i += n
	}
	fmt.Fprintln(w, strings.TrimRight(groups.String(), " "))
	fmt.Fprintln(w, titles.String())
}

// Rows prints a line per class.
func Rows(w io.Writer, columns []Column, values Values, classes []string) {
	for _, class := range classes {
		line := pad(class, classWidth)
		for i, c := range columns {
			v, ok := values[i][class]
			line += padLeft(cell(c.Unit, v, ok), cellWidth)
		}
		fmt.Fprintln(w, line)
	}
}

func cell(unit string, v float64, ok bool) string {
	switch {
	case !ok || math.IsNaN(v):
		return "-"
	case unit == "milliseconds":
		return significant(v * 1000)
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
