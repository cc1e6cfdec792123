package main

import (
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/soak"
)

// word is one word of a command line, with what is quoted in it.
var word = regexp.MustCompile(`(?:[^\s']|'[^']*')+`)

// A login out of a Secret, which often ends with a line end, is the same for all sub-commands.
func TestLoginWithALineEnd(t *testing.T) {
	n := 0
	for _, end := range []string{"\n", "\r\n"} {
		t.Setenv("LOADGEN_DSN", "shop"+end)
		for _, c := range newProgram().Flags.Model().Commands {
			if !slices.ContainsFunc(c.Flags, func(f *kingpin.FlagModel) bool { return f.Envar == "LOADGEN_DSN" }) {
				continue
			}
			p := newProgram()
			if _, err := p.Flags.Parse([]string{c.Name}); err != nil {
				t.Fatal(err)
			}
			if got := p.Flags.GetCommand(c.Name).GetFlag("dsn").Model().Value.String(); got != "shop" {
				t.Errorf("%s: the login is %q", c.Name, got)
			}
			n++
		}
	}
	if n != 10 {
		t.Errorf("%d logins", n)
	}
}

// The fields that the help has of a file are those that the file may have.
func TestFieldsOfHelp(t *testing.T) {
	filler := []string{"and", "or", "where", "a", "class", "has", "several"}
	for at, c := range map[[2]string]struct {
		after string
		of    reflect.Type
	}{
		{"matrix", "targets"}:   {"targets, each with ", reflect.TypeFor[matrix.Target]()},
		{"baseline", "targets"}: {"targets, each with ", reflect.TypeFor[matrix.Target]()},
		{"soak", "plan"}:        {"YAML file with ", reflect.TypeFor[soak.Plan]()},
	} {
		var fields []string
		for i := range c.of.NumField() {
			name, _, _ := strings.Cut(c.of.Field(i).Tag.Get("yaml"), ",")
			fields = append(fields, name)
		}
		help := newProgram().Flags.GetCommand(at[0]).GetFlag(at[1]).Model().Help
		_, list, ok := strings.Cut(help, c.after)
		if list, _, _ = strings.Cut(list, "."); !ok || list == "" {
			t.Errorf("%s: no fields in %q", at, help)
		}
		for _, name := range regexp.MustCompile(`[a-z_]+`).FindAllString(list, -1) {
			if !slices.Contains(fields, name) && !slices.Contains(filler, name) {
				t.Errorf("%s: the help has the field %s; there are %v", at, name, fields)
			}
		}
	}
}

// The flags that a help names are there, in its sub-command or another.
func TestFlagsOfHelp(t *testing.T) {
	model := newProgram().Flags.Model()
	flags := []string{"selector", "tail"} // kubectl's
	texts := map[string]string{}
	for _, c := range model.Commands {
		texts[c.Name] = c.Help
		for _, f := range append(slices.Clone(model.Flags), c.Flags...) {
			flags = append(flags, f.Name)
			texts[c.Name+" --"+f.Name] = f.Help
		}
	}
	named := regexp.MustCompile(`--(?:no-)?([a-z][a-z0-9.-]*[a-z0-9])`)
	for of, text := range texts {
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(flags, m[1]) {
				t.Errorf("%s: the help has --%s, which no sub-command takes", of, m[1])
			}
		}
	}
}

// Every sub-command shows examples in its help, and they are command lines it takes.
func TestExamples(t *testing.T) {
	for _, c := range newProgram().Flags.Model().Commands {
		if c.Name == "help" {
			continue
		}
		examples := strings.Split(strings.TrimSpace(c.HelpLong), "\n")
		if len(examples) < 2 {
			t.Errorf("%s has %d examples, want at least 2", c.Name, len(examples))
		}
		for _, e := range examples {
			var args []string
			for _, a := range word.FindAllString(e, -1) {
				args = append(args, strings.ReplaceAll(a, "'", ""))
			}
			for strings.Contains(args[0], "=") { // an assignment, for the shell
				args = args[1:]
			}
			p := newProgram()
			if chosen, err := p.Flags.Parse(args[1:]); err != nil || chosen != c.Name || args[0] != "loadgen" || p.chosen == nil {
				t.Errorf("%s: takes %q, %v", e, chosen, err)
			}
		}
	}
	out, err := exec.Command(binary(t), "baseline", "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "\nExamples:\n  loadgen baseline") {
		t.Errorf("%v\n%s", err, out)
	}
}
