package matrix

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schema is schema.json, ready to validate with; formats such as date-time count.
func schema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(Schema))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("schema.json", parsed); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// validate says what of a report's JSON is not as the schema says.
func validate(t *testing.T, s *jsonschema.Schema, r *Report) (error, any) {
	t.Helper()
	var text strings.Builder
	if err := r.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(value), value
}

// fill sets every exported field to something that is not its zero, so that nothing is left out.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.String:
		v.SetString("x")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(0.5)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64:
		v.SetUint(1)
	default:
		panic(fmt.Sprint("no filling for ", v.Type()))
	}
}

// full is a report with every field that there is.
func full() *Report {
	r := &Report{}
	fill(reflect.ValueOf(r).Elem())
	r.Schema, r.Order, r.Targets[0].Engine, r.Rows[0].Limit.What, r.Classes[0].Verdict = SchemaVersion, Orders[0], "postgres", Limits[0], Verdicts[0]
	return r
}

// Every field that a report can have is in the schema, and what the schema has is there: nothing is
// documented that is not written.
func TestSchemaIsWhole(t *testing.T) {
	s := schema(t)
	err, value := validate(t, s, full())
	if err != nil {
		t.Fatalf("a report with every field is refused:\n%v", err)
	}
	var visit func(path string, s *jsonschema.Schema, value any)
	visit = func(path string, s *jsonschema.Schema, value any) {
		if s.Ref != nil {
			if path != "" && s.Description == "" && s.Ref.Description == "" {
				t.Errorf("%s has no description", path)
			}
			s = s.Ref
		} else if s.Description == "" && !strings.HasSuffix(path, "[]") {
			t.Errorf("%s has no description", path)
		}
		switch value := value.(type) {
		case map[string]any:
			if s.Properties == nil { // a map by names
				return
			}
			if s.AdditionalProperties != false {
				t.Errorf("%s takes properties that are not documented", path)
			}
			for name, p := range s.Properties {
				if inner, ok := value[name]; ok {
					visit(path+"."+name, p, inner)
				} else {
					t.Errorf("%s.%s is in the schema and never written", path, name)
				}
			}
		case []any:
			items, ok := s.Items2020, s.Items2020 != nil
			if !ok || len(value) == 0 {
				t.Errorf("%s says nothing of its items", path)
				return
			}
			visit(path+"[]", items, value[0])
		}
	}
	visit("", s, value)
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
		_, value := validate(t, s, full())
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
