package matrix

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/plumbline/plumbline/tests/schematest"
)

func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	return schematest.Compile(t, Schema)
}

// validate returns where a report's JSON violates the schema.
func validate(t *testing.T, s *jsonschema.Schema, r *Report) (any, error) {
	t.Helper()
	var text bytes.Buffer
	if err := r.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	value := schematest.Value(t, text.Bytes())
	return value, s.Validate(value)
}

// full is a report with every field that there is.
func full() *Report {
	r := &Report{}
	schematest.Fill(reflect.ValueOf(r).Elem())
	r.Schema, r.Order, r.Targets[0].Engine, r.Rows[0].Limit.What, r.Classes[0].Verdict = SchemaVersion, Orders[0], "postgres", Limits[0], Verdicts[0]
	return r
}

// Every field that a report can have is in the schema, and what the schema has is there: nothing is
// documented that is not written.
func TestSchemaIsWhole(t *testing.T) {
	s := schema(t)
	value, err := validate(t, s, full())
	if err != nil {
		t.Fatalf("a report with every field is refused:\n%v", err)
	}
	schematest.Whole(t, "", s, value)
}

// What is wrong is refused: the schema is not one that takes anything.
func TestSchemaRefuses(t *testing.T) {
	s := schema(t)
	for what, spoil := range map[string]func(map[string]any){
		"an unknown field":   func(m map[string]any) { m["more"] = 1 },
		"no rows":            func(m map[string]any) { delete(m, "rows") },
		"another version":    func(m map[string]any) { m["schema"] = SchemaVersion + 1 },
		"a rate below 0":     func(m map[string]any) { m["rows"].([]any)[0].(map[string]any)["result"].(map[string]any)["rate"] = -1 },
		"a time that is not": func(m map[string]any) { m["began"] = "yesterday" },
		"an unknown limit": func(m map[string]any) {
			m["rows"].([]any)[0].(map[string]any)["limit"].(map[string]any)["what"] = "the moon"
		},
	} {
		value, _ := validate(t, s, full())
		spoil(value.(map[string]any))
		if s.Validate(value) == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// The lists of words are the same in the schema and in the program.
func TestSchemaEnums(t *testing.T) {
	var parsed struct {
		Properties struct {
			Order   struct{ Enum []string }
			Classes struct {
				Items struct {
					Properties struct{ Verdict struct{ Enum []string } }
				}
			}
		}
		Defs struct {
			Row struct {
				Properties struct {
					Limit struct {
						Properties struct{ What struct{ Enum []string } }
					}
				}
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(Schema), &parsed); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		got, want []string
	}{
		{"orders", parsed.Properties.Order.Enum, Orders}, {"verdicts", parsed.Properties.Classes.Items.Properties.Verdict.Enum, Verdicts},
		{"limits", parsed.Defs.Row.Properties.Limit.Properties.What.Enum, Limits},
	} {
		if !slices.Equal(c.got, c.want) {
			t.Errorf("%s: %q in the schema, %q in the program", c.name, c.got, c.want)
		}
	}
}
