package given

import (
	"strings"
	"testing"
)

// An error names the line, column and field of what is wrong, and what is wanted.
func TestDecode(t *testing.T) {
	type inner struct {
		B int `json:"b"`
	}
	for name, c := range map[string]struct{ text, want string }{
		"syntax":   {"{\n  \"a\": x\n}", "line 7, column 8: invalid character 'x' looking for beginning of value; want JSON"},
		"type":     {"{\"a\": {\n\"b\": \"one\"}}", "line 7, column 10: a.b is a JSON string; want a whole number"},
		"cut":      {"{\n\"a\": {\"b\": 1},\n", "line 7, column 15: it is cut: the JSON has no end"},
		"empty":    {" \n", "it is empty; want a JSON object"},
		"mark":     {"\xef\xbb\xbf{}", "line 6, column 1: it begins with a byte order mark"},
		"array":    {"[1]", "line 6, column 1: the whole is a JSON array; want an object"},
		"unknown":  {"{\n\"c\": 1}", "line 7, column 1: the field \"c\" is not known"},
		"trailing": {"{}\n\nmore", "line 8, column 1: something follows the JSON object"},
		"CRLF":     {"{\r\n\"a\": y}", "line 7, column 6"},
	} {
		var into struct {
			A inner `json:"a"`
		}
		if err := Decode([]byte(c.text), &into, true, 6); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
	var into struct{ A inner }
	if err := Decode([]byte("{\"a\": {\"b\": 3}}\n"), &into, false, 1); err != nil || into.A.B != 3 {
		t.Errorf("%+v, %v", into, err)
	}
}

// What recognizes what a file is instead of what is wanted by what it has.
func TestWhat(t *testing.T) {
	for text, want := range map[string]string{
		"": "an empty file", "null": "JSON's null", "[]": "a JSON array", "3": "a JSON value that is no object", "plain words": "no JSON", "{": "JSON that is cut or damaged",
		`{"x": 1}`: "a JSON object of another kind", `{"fio version": "3", "jobs": []}`: "fio's own JSON", `{"metrics": {}, "root_group": {}}`: "k6's own summary",
		`{"tool": "fio", "profile": "p", "offered": 1}`:                  "the result of one load (--once --json)",
		`{"tool": "fio", "profile": "p", "offered": 1, "generator": {}}`: "the result of one of several generators (--once --json --generators)",
		`{"matrix": "wal", "rows": []}`:                                  "a matrix's result (loadgen matrix --output)",
		`{"kind": "baseline", "classes": [], "interval_seconds": 10}`:    "a baseline's record (loadgen baseline --record)",
		"groups:\n  - name: a\n":                                         "a file of Prometheus' rules",
		"targets:\n  - {storageclass: a}\n":                              "a file of targets, or a soak's plan",
	} {
		if got := What([]byte(text)); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
}

// zeros is a file without an end.
type zeros struct{ read int }

func (z *zeros) Read(b []byte) (int, error) {
	z.read += len(b)
	return len(b), nil
}

// Of a file without an end no more is read than is taken; one that is as long as may be is.
func TestReadAll(t *testing.T) {
	var z zeros
	if _, err := readAll(&z, 1000); err == nil || err.Error() != "longer than 1000 bytes" || z.read > 4000 {
		t.Errorf("%v after %d bytes", err, z.read)
	}
	if text, err := readAll(strings.NewReader(strings.Repeat("x", 1000)), 1000); err != nil || len(text) != 1000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
