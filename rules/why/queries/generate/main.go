// Command generate writes the queries so that they read either kind of histogram.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/format"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/rules/histograms"
	"github.com/plumbline/plumbline/rules/why/queries"
)

func main() {
	out := flag.String("out", "rules/why/queries/portable.go", "The file that is written.")
	flag.Parse()
	text, err := source()
	if err == nil {
		err = os.WriteFile(*out, text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rules/why/queries/generate:", err)
		os.Exit(1)
	}
}

// source is the file's text.
func source() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("// Code generated from source.go. DO NOT EDIT.\n\npackage queries\n")
	for _, made := range []struct {
		kind          histograms.Kind
		name, comment string
	}{
		{histograms.Either, "Portable", "Portable are the queries that read either kind of histogram."},
		{histograms.Classic, "Classic", "Classic are those of histograms for a store that does not know native ones."},
	} {
		of := histograms.Of(made.kind, histograms.Exported...)
		fmt.Fprintf(&b, "\n// %s\nvar %s = map[string]string{\n", made.comment, made.name)
		for _, name := range slices.Sorted(maps.Keys(queries.Source)) {
			query := queries.Source[name]
			if !slices.Contains(queries.OfNative, name) {
				var err error
				if query, err = portable(of, query); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			} else if made.kind == histograms.Classic {
				continue
			}
			if made.kind == histograms.Either || strings.Contains(queries.Source[name], "histogram_") {
				fmt.Fprintf(&b, "%q: `%s`,\n", name, query)
			}
		}
		b.WriteString("}\n")
	}
	return format.Source(b.Bytes())
}

// stands are what stands for matchers and the window while PromQL is parsed.
var stands = [][2]string{{"$server", `__server__=""`}, {"$anywhere", `__anywhere__=""`}, {"$volume", `__volume__=""`}, {"$device", `__device__=""`}, {"$node", `__node__=""`},
	{"$class", `__class__=""`}, {"$cluster", `__cluster__=""`}, {"$window", "7m11s"}}

func portable(either histograms.Histograms, text string) (string, error) {
	for _, s := range stands {
		text = strings.ReplaceAll(text, s[0], s[1])
	}
	query, err := either.Expr(text)
	if err != nil {
		return "", err
	}
	for _, s := range stands {
		query = strings.ReplaceAll(query, s[1], s[0])
	}
	return strings.Join(strings.Fields(query), " "), nil
}
