// Package given reads the files that people give to commands. Its errors name the place of what is wrong, and what
// it is instead of what is wanted.
package given

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// Longest is how many bytes a text may have: some days of a baseline's record are a tenth of it.
const Longest = 256 << 20

// ReadFile is ReadAll of a file.
func ReadFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := ReadAll(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return text, nil
}

// ReadAll reads a whole text. One that is longer than Longest, such as a device without an end, is an error.
func ReadAll(from io.Reader) ([]byte, error) { return readAll(from, Longest) }

func readAll(from io.Reader, longest int) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, int64(longest)+1))
	if err == nil && len(text) > longest {
		err = fmt.Errorf("longer than %d bytes", longest)
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

// Decode reads one JSON value. With strict, a field that is not known is an error. Errors name the line, the column and
// the field; line is the first one's number.
func Decode(text []byte, into any, strict bool, line int) error {
	switch {
	case len(bytes.TrimSpace(text)) == 0:
		return errors.New("it is empty; want a JSON object")
	case bytes.HasPrefix(text, []byte("\xef\xbb\xbf")):
		return fmt.Errorf("line %d, column 1: it begins with a byte order mark; want a JSON object, which begins with {", line)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	if strict {
		d.DisallowUnknownFields()
	}
	err := d.Decode(into)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return trailing(text, d.InputOffset(), line)
	case errors.As(err, &kind):
		return fmt.Errorf("%s: %s is a JSON %s; want %s", place(text, kind.Offset, line), field(kind.Field), kind.Value, want(kind))
	case errors.As(err, &syntax):
		return fmt.Errorf("%s: %s; want JSON", place(text, syntax.Offset, line), syntax.Error())
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%s: it is cut: the JSON has no end", place(text, int64(len(text)), line))
	}
	if _, name, ok := strings.Cut(err.Error(), "json: unknown field "); ok {
		return fmt.Errorf("%s: the field %s is not known", place(text, int64(bytes.Index(text, []byte(name))+1), line), name)
	}
	return err // of a field that checks itself
}

// field is a field's path. Go's names of embedded parts are not in the JSON.
func field(path string) string {
	var names []string
	for _, name := range strings.Split(path, ".") {
		if name != "" && !unicode.IsUpper(rune(name[0])) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "the whole"
	}
	return strings.Join(names, ".")
}

// trailing is an error if more than blanks follows the value.
func trailing(text []byte, end int64, line int) error {
	rest := text[end:]
	if more := bytes.TrimLeft(rest, " \t\r\n"); len(more) > 0 {
		return fmt.Errorf("%s: something follows the JSON object; want one", place(text, end+int64(len(rest)-len(more))+1, line))
	}
	return nil
}

// want is what JSON has of a type.
func want(e *json.UnmarshalTypeError) string {
	switch kind := e.Type.Kind().String(); {
	case kind == "struct" || kind == "map":
		return "an object"
	case kind == "slice" || kind == "array":
		return "an array"
	case strings.HasPrefix(kind, "int"), strings.HasPrefix(kind, "uint"):
		return "a whole number"
	case strings.HasPrefix(kind, "float"):
		return "a number"
	case kind == "bool":
		return "true or false"
	}
	return "a string"
}

// place describes where the byte before an offset is.
func place(text []byte, offset int64, line int) string {
	before := text[:max(0, min(offset-1, int64(len(text))))]
	if offset >= int64(len(text)) {
		before = bytes.TrimRight(text, "\r\n")
	}
	last := before[bytes.LastIndexByte(before, '\n')+1:]
	return fmt.Sprintf("line %d, column %d", line+bytes.Count(before, []byte("\n")), utf8.RuneCount(last)+1)
}

// kinds are what a JSON object is by the fields that it has, the first that fits.
var kinds = []struct {
	fields []string
	what   string
}{
	{[]string{"kind", "classes", "interval_seconds"}, "a baseline's record (loadgen baseline --record)"},
	{[]string{"matrix", "rows"}, "a matrix's result (loadgen matrix --output)"},
	{[]string{"tool", "profile", "offered", "generator"}, "the result of one of several generators (--once --json --generators)"},
	{[]string{"tool", "profile", "offered", "generators"}, "the sum of several generators (loadgen merge --json)"},
	{[]string{"tool", "profile", "offered"}, "the result of one load (--once --json)"},
	{[]string{"workload", "from", "to"}, "what a prediction goes by (loadgen predict --save)"},
	{[]string{"name", "windows"}, "a class's measurements (loadgen probe)"},
	{[]string{"began", "plan"}, "a part of a soak's folder; the whole folder is the soak"},
	{[]string{"lines", "alpha", "threshold"}, "a comparison (loadgen compare --json)"},
	{[]string{"kinds", "refusal"}, "a prediction (loadgen predict --json)"},
	{[]string{"fio version"}, "fio's own JSON"},
	{[]string{"metrics", "root_group"}, "k6's own summary"},
	{[]string{"data", "status"}, "an answer of Prometheus"},
}

// What describes what a file is, as far as that can be recognized.
func What(text []byte) string {
	trimmed := bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))
	if len(trimmed) == 0 {
		return "an empty file"
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(trimmed, &object) == nil && object != nil {
		for _, k := range kinds {
			has := true
			for _, f := range k.fields {
				_, there := object[f]
				has = has && there
			}
			if has {
				return k.what
			}
		}
		return "a JSON object of another kind"
	}
	var value any
	if json.Unmarshal(trimmed, &value) == nil {
		switch value.(type) {
		case nil:
			return "JSON's null"
		case []any:
			return "a JSON array"
		}
		return "a JSON value that is no object"
	}
	var pins struct {
		Groups  []any `yaml:"groups"`
		Targets []any `yaml:"targets"`
	}
	if yaml.Unmarshal(trimmed, &pins) == nil {
		switch {
		case len(pins.Groups) > 0:
			return "a file of Prometheus' rules"
		case len(pins.Targets) > 0:
			return "a file of targets, or a soak's plan"
		}
	}
	if trimmed[0] == '{' || trimmed[0] == '[' {
		return "JSON that is cut or damaged"
	}
	return "no JSON"
}

// NotA is the error of a file that is something else than what is wanted.
func NotA(path string, text []byte, wanted string) error {
	return fmt.Errorf("%s: not %s: it is %s", path, wanted, What(text))
}
