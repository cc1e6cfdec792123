// Package schematest holds JSON Schemas and what is written by them together: whatever is written is valid, all that a
// type can have is described, and all that is described can be written.
package schematest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Compile returns a schema, ready to validate with; formats such as date-time count.
func Compile(t *testing.T, text string) *jsonschema.Schema {
	t.Helper()
	parsed, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
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

// Value returns a document as the validator reads it: what is marshalled of it, or itself if it is JSON.
func Value(t *testing.T, document any) any {
	t.Helper()
	text, ok := document.([]byte)
	if !ok {
		var err error
		if text, err = json.Marshal(document); err != nil {
			t.Fatal(err)
		}
	}
	value, err := jsonschema.UnmarshalJSON(strings.NewReader(string(text)))
	if err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	return value
}

// Valid fails the test if a document is not valid by the schema.
func Valid(t *testing.T, s *jsonschema.Schema, document any) {
	t.Helper()
	value := Value(t, document)
	if err := s.Validate(value); err != nil {
		t.Errorf("%v:\n%v", err, value)
	}
}

// Fill sets every exported field to something that is not its zero, so that nothing is left out.
func Fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		Fill(v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)))
			return
		}
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				Fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		Fill(v.Index(0))
	case reflect.Array:
		for i := range v.Len() {
			Fill(v.Index(i))
		}
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		Fill(key)
		Fill(value)
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

// Whole fails the test unless every part of the schema has a description and is in a value, and takes nothing else. The
// value has every field.
func Whole(t *testing.T, path string, s *jsonschema.Schema, value any) {
	t.Helper()
	described := s.Description != "" || strings.HasSuffix(path, "[]")
	for ; s.Ref != nil; s = s.Ref {
		described = described || s.Ref.Description != ""
	}
	if !described {
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
				Whole(t, path+"."+name, p, inner)
			} else {
				t.Errorf("%s.%s is in the schema and never written", path, name)
			}
		}
	case []any:
		items, ok := s.Items2020, s.Items2020 != nil
		if !ok || len(value) == 0 {
			t.Errorf("%s has no description of its items", path)
			return
		}
		Whole(t, path+"[]", items, value[0])
	}
}
