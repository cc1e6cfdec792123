package dashboards

import (
	"bytes"
	"encoding/json"
	"strings"
)

// widest is a line's length in a dashboard's file, but for a longer string.
const widest = 140

// format writes JSON with as much on a line as fits: a diff shows what has changed, and the file is not mostly
// brackets. The order of members stays.
func format(value any) ([]byte, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	lines, err := layout("", text, widest)
	return []byte(strings.Join(lines, "\n") + "\n"), err
}

// layout returns the lines of a value with its key before it: one if that fits the width; else the brackets' and,
// between them, the members', of which short ones share a line.
func layout(key string, value json.RawMessage, width int) ([]string, error) {
	var flat bytes.Buffer
	if err := json.Indent(&flat, value, "", ""); err != nil {
		return nil, err
	}
	// A line's end within a string is written as \n.
	one := key + strings.NewReplacer(",\n", ", ", "\n", "").Replace(flat.String())
	if len(one) < width || value[0] != '{' && value[0] != '[' {
		return []string{one}, nil
	}
	lines, open := []string{key + string(value[0])}, false
	d := json.NewDecoder(bytes.NewReader(value))
	for _, err := d.Token(); d.More(); {
		name := ""
		if err == nil && value[0] == '{' {
			var token json.Token
			token, err = d.Token()
			quoted, _ := json.Marshal(token)
			name = string(quoted) + ": "
		}
		var member json.RawMessage
		if err == nil {
			err = d.Decode(&member)
		}
		if err != nil {
			return nil, err
		}
		own, err := layout(name, member, width-2)
		if err != nil {
			return nil, err
		}
		if d.More() {
			own[len(own)-1] += ","
		}
		if last := len(lines) - 1; open && len(own) == 1 && len(lines[last]+" "+own[0]) <= width {
			lines[last] += " " + own[0]
			continue
		}
		for _, line := range own {
			lines = append(lines, "  "+line)
		}
		open = len(own) == 1
	}
	return append(lines, one[len(one)-1:]), nil
}
