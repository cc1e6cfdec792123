package contract

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	pageBlock    = regexp.MustCompile("(?m)^    .*$|(?s:^```.*?^```)")
	pageSpan     = regexp.MustCompile("`([^`]+)`")
	makeTarget   = regexp.MustCompile(`(?m)^([a-z0-9 -]+):(?:[^=]|$)`)
	makeCommand  = regexp.MustCompile(`\bmake ([a-z][a-z0-9-]*)`)
	goCommand    = regexp.MustCompile(`\bgo (?:test|run|build)\b[^#;&|\n]*?(\./[\w./-]+)`)
	fileArgument = regexp.MustCompile(`-f (manifests/[\w./-]+)`)
	ourCommand   = regexp.MustCompile(`(?m)(?:^ *|[;&|(] *|sudo | -- /)(loadgen|kubectl plumbline)\b([^#|;&>\n]*)`)
	subCommand   = regexp.MustCompile(`^ +([a-z]+)\b`)
	longFlag     = regexp.MustCompile(`\s--(?:no-)?([a-z][a-z.-]*)`)
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
	yamlBlock    = regexp.MustCompile(`(?m)^\n((?: {4}.*\n)+)`)
	yamlStart    = regexp.MustCompile(`^ {4}[a-z][A-Za-z]*:(?: [^"]|\n)`)
	testName     = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+\b`)
)

// programs are those whose sub-commands and flags pages name, and their folders.
var programs = map[string]string{"loadgen": "loadgen/", "kubectl plumbline": "manifests/kubectl-plumbline/"}

// pageCode returns what a page shows as code: indented lines and fenced blocks, and the spans in its text.
func pageCode(page string) []string {
	all := pageBlock.FindAllString(page, -1)
	for _, m := range pageSpan.FindAllStringSubmatch(pageBlock.ReplaceAllString(page, ""), -1) {
		all = append(all, strings.ReplaceAll(m[1], "\n", " "))
	}
	return all
}

// The targets, packages, files, sub-commands, flags and tests that pages name exist.
func TestCommandsOfPages(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(testkit.Root(), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string]bool{}
	for _, m := range makeTarget.FindAllStringSubmatch(string(makefile), -1) {
		for _, name := range strings.Fields(m[1]) {
			targets[name] = true
		}
	}
	pages, sources, functions := map[string]string{}, map[string]string{}, map[string]bool{}
	eachFile(t, func(name string, text []byte) {
		switch filepath.Ext(name) {
		case ".md":
			pages[name] = string(text)
		case ".go":
			for _, m := range testFunction.FindAllSubmatch(text, -1) {
				functions[string(m[1])] = true
			}
			for program, folder := range programs {
				if strings.HasPrefix(name, folder) && !strings.HasSuffix(name, "_test.go") {
					sources[program] += string(text)
				}
			}
		}
	})
	checked := 0
	for name, page := range pages {
		need := func(there bool, what, which, code string) {
			checked++
			if !there {
				t.Errorf("%s: there is no %s %s: %s", name, what, which, code)
			}
		}
		exists := func(path string) bool {
			_, err := os.Stat(filepath.Join(testkit.Root(), path))
			return err == nil
		}
		for _, test := range testName.FindAllString(page, -1) {
			need(functions[test], "test", test, "")
		}
		for _, code := range pageCode(page) {
			for _, m := range makeCommand.FindAllStringSubmatch(code, -1) {
				need(targets[m[1]], "target", m[1], code)
			}
			for _, m := range goCommand.FindAllStringSubmatch(code, -1) {
				if !strings.Contains(m[1], "NAME") {
					need(exists(strings.TrimSuffix(m[1], "...")), "package", m[1], code)
				}
			}
			for _, m := range fileArgument.FindAllStringSubmatch(code, -1) {
				need(exists(m[1]), "file", m[1], code)
			}
			for _, m := range ourCommand.FindAllStringSubmatch(code, -1) {
				source := sources[m[1]]
				if sub := subCommand.FindStringSubmatch(m[2]); sub != nil {
					need(strings.Contains(source, `"`+sub[1]+`"`), "command of "+m[1], sub[1], code)
				}
				for _, flag := range longFlag.FindAllStringSubmatch(m[2], -1) {
					need(flag[1] == "help" || strings.Contains(source, `"`+flag[1]+`"`), "flag of "+m[1], flag[1], code)
				}
			}
		}
	}
	if checked < 400 {
		t.Errorf("only %d names of targets, packages, files, commands, flags and tests were found", checked)
	}
}

// What pages show as YAML is YAML.
func TestYAMLOfPages(t *testing.T) {
	checked := 0
	eachFile(t, func(name string, text []byte) {
		if filepath.Ext(name) != ".md" {
			return
		}
		for _, m := range yamlBlock.FindAllSubmatch(text, -1) {
			if !yamlStart.Match(m[1]) {
				continue
			}
			checked++
			for document := range strings.SplitSeq(string(m[1]), "\n    ---\n") {
				var shown map[string]any
				if err := yaml.Unmarshal([]byte(document), &shown); err != nil {
					t.Errorf("%s: %v:\n%s", name, err, document)
				}
			}
		}
	})
	if checked < 10 {
		t.Errorf("only %d blocks of YAML were found", checked)
	}
}

// A plugin that somebody builds from a checkout has the version that make push gives the images, which kubectl plumbline
// try starts.
func TestVersionOfThePlugin(t *testing.T) {
	chart, err := os.ReadFile(filepath.Join(testkit.Root(), "manifests", "chart", "Chart.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`(?m)^appVersion: (\S+)$`).FindSubmatch(chart)
	if version == nil {
		t.Fatal("Chart.yaml has no appVersion")
	}
	for _, target := range []string{"kubectl-plumbline", "build", "plugins"} {
		command := exec.Command("make", "--dry-run", target)
		command.Dir = testkit.Root()
		steps, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, steps)
		}
		built := regexp.MustCompile(`go build ((?:[^\n]|\\\n)*) \./manifests/kubectl-plumbline\b`).FindAllSubmatch(steps, -1)
		if len(built) != 1 || !strings.Contains(string(built[0][1]), "-X main.release="+string(version[1])) {
			t.Errorf("make %s builds the plugin by %q, want one with the release %s", target, built, version[1])
		}
	}
}
