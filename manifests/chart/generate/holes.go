package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// A hole is a string in an object whose place a template's expression takes. The brackets occur in
// no manifest, and YAML leaves strings of them unquoted or in quotes that fill takes away.
const holeOpen, holeClose = "⟦", "⟧"

// hole is a scalar: the expression's text stands in the hole's place.
func hole(expression string) string { return holeOpen + expression + holeClose }

// block is a mapping or a list: the expression's YAML stands below the key, set in.
func block(expression string) string { return holeOpen + "yaml " + expression + holeClose }

// lines is any number of lines of the same mapping: the key and its colon go, too.
func lines(expression string) (key string) { return holeOpen + "lines " + expression + holeClose }

var (
	blockHole  = regexp.MustCompile(`(?m)^( *)((?:- )*)([^\s:⟦]+): ['"]?⟦yaml ([^⟧]*)⟧['"]?$`)
	linesHole  = regexp.MustCompile(`(?m)^( *)['"]?⟦lines ([^⟧]*)⟧['"]?: .*$`)
	itemsHole  = regexp.MustCompile(`(?m)^( *)- ['"]?⟦items ([^⟧]*)⟧['"]?$`)
	quotedHole = regexp.MustCompile(`'⟦([^⟧]*)⟧'`)
	plainHole  = regexp.MustCompile(`⟦([^⟧]*)⟧`)
)

// items is any number of items in a list.
func items(expression string) string { return holeOpen + "items " + expression + holeClose }

// conditional are the items of lists that a condition adds, by the number in their hole.
var conditional []conditionalItems

type conditionalItems struct {
	when  string
	items []any
}

var ifHole = regexp.MustCompile(`(?m)^( *)- ['"]?⟦if (\d+)⟧['"]?$`)

// itemsIf is items of a list that are there under a condition only.
func itemsIf(when string, items []any) string {
	conditional = append(conditional, conditionalItems{when, items})
	return fmt.Sprintf("%sif %d%s", holeOpen, len(conditional)-1, holeClose)
}

// fill writes an object as a template: its YAML with the expressions in its holes.
func fill(o object) (string, error) {
	text, err := yaml.Marshal(o)
	if err != nil {
		return "", err
	}
	// Prometheus' and Helm's braces are the same.
	if strings.Contains(string(text), "{{") {
		return "", fmt.Errorf("%s has braces, which a template would take for its own", name(o))
	}
	s := string(text)
	s = blockHole.ReplaceAllStringFunc(s, func(line string) string {
		m := blockHole.FindStringSubmatch(line)
		indent := len(m[1]) + len(m[2]) + 2
		return fmt.Sprintf("%s%s%s:\n%s{{- toYaml (%s) | nindent %d }}", m[1], m[2], m[3], strings.Repeat(" ", indent), m[4], indent)
	})
	s = linesHole.ReplaceAllStringFunc(s, func(line string) string {
		m := linesHole.FindStringSubmatch(line)
		return fmt.Sprintf("%s{{- %s | trim | nindent %d }}", m[1], m[2], len(m[1]))
	})
	s = itemsHole.ReplaceAllStringFunc(s, func(line string) string {
		m := itemsHole.FindStringSubmatch(line)
		return fmt.Sprintf("%s{{- with %s }}{{ toYaml . | nindent %d }}{{ end }}", m[1], m[2], len(m[1]))
	})
	s = ifHole.ReplaceAllStringFunc(s, func(line string) string {
		m := ifHole.FindStringSubmatch(line)
		number, _ := strconv.Atoi(m[2])
		items, err := yaml.Marshal(conditional[number].items)
		if err != nil {
			panic(err)
		}
		var b strings.Builder
		fmt.Fprintf(&b, "%s{{- if %s }}\n", m[1], conditional[number].when)
		for l := range strings.Lines(string(items)) {
			b.WriteString(m[1] + l)
		}
		return b.String() + m[1] + "{{- end }}"
	})
	// What YAML quoted because of an expression's own characters is no string of quotes.
	s = quotedHole.ReplaceAllString(s, "⟦$1⟧")
	return plainHole.ReplaceAllString(s, "{{ $1 }}"), nil
}

// name is what messages call an object.
func name(o object) string {
	n, _ := at(o, "metadata", "name").(string)
	return fmt.Sprintf("%v/%s", o["kind"], n)
}

// at is the value at a path of keys and indices; nil if there is none.
func at(o any, path ...any) any {
	for _, step := range path {
		switch s := step.(type) {
		case string:
			m, ok := o.(map[string]any)
			if !ok {
				return nil
			}
			o = m[s]
		case int:
			l, ok := o.([]any)
			if !ok || s >= len(l) {
				return nil
			}
			o = l[s]
		}
	}
	return o
}

// set puts a value at a path. A path that the object does not have up to its last step is an error
// of parts.go, which fell behind the manifests.
func set(o object, value any, path ...any) {
	parent := at(o, path[:len(path)-1]...)
	switch last := path[len(path)-1].(type) {
	case string:
		m, ok := parent.(map[string]any)
		if !ok {
			panic(fmt.Sprintf("%s has no %v", name(o), path))
		}
		m[last] = value
	case int:
		l, ok := parent.([]any)
		if !ok || last >= len(l) {
			panic(fmt.Sprintf("%s has no %v", name(o), path))
		}
		l[last] = value
	}
}
