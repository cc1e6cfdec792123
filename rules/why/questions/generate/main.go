// Command generate writes the questions so that they read either kind of histogram.
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
	"github.com/plumbline/plumbline/rules/why/questions"
)

func main() {
	out := flag.String("out", "rules/why/questions/asked.go", "The file that is written.")
	flag.Parse()
	text, err := source()
	if err == nil {
		err = os.WriteFile(*out, text, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rules/why/questions/generate:", err)
		os.Exit(1)
	}
}

// source is the file's text.
func source() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString("// Code generated from written.go. DO NOT EDIT.\n\npackage questions\n")
	for _, made := range []struct {
		kind          histograms.Kind
		name, comment string
	}{
		{histograms.Either, "Asked", "Asked are the questions as they are asked: of either kind of histogram."},
		{histograms.Classic, "Classic", "Classic are those of histograms as they are asked where native ones are not even known."},
	} {
		of := histograms.Of(made.kind, histograms.Exported...)
		fmt.Fprintf(&b, "\n// %s\nvar %s = map[string]string{\n", made.comment, made.name)
		for _, name := range slices.Sorted(maps.Keys(questions.Written)) {
			asked := questions.Written[name]
			if !slices.Contains(questions.OfNative, name) {
				var err error
				if asked, err = ask(of, asked); err != nil {
					return nil, fmt.Errorf("%s: %w", name, err)
				}
			} else if made.kind == histograms.Classic {
				continue
			}
			if made.kind == histograms.Either || strings.Contains(questions.Written[name], "histogram_") {
				fmt.Fprintf(&b, "%q: `%s`,\n", name, asked)
			}
		}
		b.WriteString("}\n")
	}
	return format.Source(b.Bytes())
}

// stands are what stands for matchers and the window while PromQL is parsed.
var stands = [][2]string{{"$server", `__server__=""`}, {"$anywhere", `__anywhere__=""`}, {"$volume", `__volume__=""`}, {"$device", `__device__=""`}, {"$node", `__node__=""`},
	{"$class", `__class__=""`}, {"$cluster", `__cluster__=""`}, {"$window", "7m11s"}}

func ask(either histograms.Histograms, question string) (string, error) {
	for _, s := range stands {
		question = strings.ReplaceAll(question, s[0], s[1])
	}
	asked, err := either.Expr(question)
	if err != nil {
		return "", err
	}
	for _, s := range stands {
		asked = strings.ReplaceAll(asked, s[1], s[0])
	}
	return strings.Join(strings.Fields(asked), " "), nil
}
