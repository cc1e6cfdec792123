package rows

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Page writes rows as Markdown: a table for each section, in order of the sections' first
// rows, and under it the runs that its rows are of. The same rows give the same page.
func Page(out io.Writer, rows []Row) error {
	var b strings.Builder
	b.WriteString("# Results\n\nWritten by `go run ./tests/results` from what the commands below it measured; do not edit. Each row names its run,\n" +
		"each run its date, machine, load average and command. How each figure is measured: [README.md](README.md).\n")
	var sections []string
	rows = slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Gone })
	for _, r := range rows {
		if !slices.Contains(sections, r.Section) {
			sections = append(sections, r.Section)
		}
	}
	for _, name := range sections {
		section(&b, name, slices.DeleteFunc(slices.Clone(rows), func(r Row) bool { return r.Section != name }))
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func section(b *strings.Builder, name string, rows []Row) {
	var columns []string
	var runs []Run
	for _, r := range rows {
		for _, c := range r.Cells {
			if !slices.Contains(columns, c.Column) {
				columns = append(columns, c.Column)
			}
		}
		if !slices.Contains(runs, r.Run) {
			runs = append(runs, r.Run)
		}
	}
	fmt.Fprintf(b, "\n## %s\n\n| |", name)
	for _, c := range columns {
		fmt.Fprintf(b, " %s |", escape(c))
	}
	b.WriteString(" run |\n|---|" + strings.Repeat("---|", len(columns)+1) + "\n")
	for _, r := range rows {
		fmt.Fprintf(b, "| %s |", escape(r.What))
		for _, c := range columns {
			fmt.Fprintf(b, " %s |", escape(r.cell(c)))
		}
		fmt.Fprintf(b, " %d |\n", slices.Index(runs, r.Run)+1)
	}
	b.WriteByte('\n')
	for i, r := range runs {
		fmt.Fprintf(b, "%d. %s, Linux %s, %d cores (%s), %d GiB; load average %s before, %s after: `%s`\n", i+1,
			r.Began.UTC().Format(time.DateTime+" UTC"), r.Machine.Kernel, r.Machine.Cores, r.Machine.CPU, r.Machine.Memory,
			r.LoadBefore, r.LoadAfter, r.Command)
	}
}

func (r Row) cell(column string) string {
	for _, c := range r.Cells {
		if c.Column == column {
			return c.Value
		}
	}
	return ""
}

// escape keeps a text within its cell.
func escape(s string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(s)
}
