package main

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// word is one word of a command line, with what is quoted in it.
var word = regexp.MustCompile(`(?:[^\s']|'[^']*')+`)

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
