package usual

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// pageText is docs/usual.md.
func pageText() string {
	var b strings.Builder
	local := strings.Join(Local, ", ")
	b.WriteString(`# What is usual

What an operation of a volume usually takes, in milliseconds. ` + "`kubectl plumbline why`" + ` compares means with these rows; they change
no verdict and no alert. Generated from [rules/usual](../rules/usual/table.go) by ` + "`go test ./rules/usual -update`" + `.

A figure is the smallest and the largest published mean of one request at a time, or a few (dbench: four). From half the smallest to
twice the largest is usual: other machines than the published ones do as much with such disks. "Up to" is a bound that the source names, without more
above it: what a maker promises, a 99th percentile, or a transaction that the operation is part of. A write or a read is a
request to the volume's block device, a sync one fdatasync of a page or a record. What is usual with more replicas is a bound for
fewer. A storage backend, more replicas or an operation that is not here is not known.

| backend | replicas | disk | network | write | sync | read | sources |
|---|---|---|---|---|---|---|---|
`)
	all := map[Source]bool{}
	for _, r := range Table {
		for _, s := range r.Sources {
			all[s] = true
		}
	}
	sources := slices.SortedFunc(maps.Keys(all), func(x, y Source) int { return cmp.Compare(x.Title, y.Title) })
	for _, r := range Table {
		replicas := ""
		if r.Replicas > 0 {
			replicas = fmt.Sprint(r.Replicas)
		}
		var from []int
		for _, s := range r.Sources {
			from = append(from, slices.Index(sources, s)+1)
		}
		slices.Sort(from)
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", strings.Replace(strings.Join(r.Backends, ", "), local, "local disks", 1), replicas, r.Disk, r.Network, r.Write, r.Sync, r.Read,
			strings.Trim(strings.ReplaceAll(fmt.Sprint(from), " ", ", "), "[]"))
	}
	fmt.Fprintf(&b, "\nLocal disks are the backends %s.\n", local)
	b.WriteString("\n| | source | date |\n|---|---|---|\n")
	for i, s := range sources {
		fmt.Fprintf(&b, "| %d | [%s](%s) | %s |\n", i+1, s.Title, s.URL, s.Date)
	}
	return b.String()
}

// String is a range as the page has it.
func (r Range) String() string {
	switch {
	case r == Range{}:
		return ""
	case r[0] == 0:
		return fmt.Sprintf("up to %v", r[1])
	case r[0] == r[1]:
		return fmt.Sprint(r[0])
	}
	return fmt.Sprintf("%v to %v", r[0], r[1])
}
