// Package answer is what kubectl plumbline answers to programs: one document a call, in JSON or YAML or as structured
// content of a tool. Schema describes it; a test holds both together.
//
// A figure that was not measured is absent; it is never 0. All text is cleaned of what a terminal obeys: others chose
// the names of the cluster's objects.
package answer

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"sigs.k8s.io/yaml"
)

// Schema describes each kind of document, as JSON Schema draft 2020-12.
//
//go:embed schema.json
var Schema string

// Version is the documents' apiVersion.
const Version = "plumbline.io/v1alpha1"

// Formats are those that Encode knows.
var Formats = []string{"json", "yaml"}

// The kinds of documents.
const (
	KindWhy     = "WhyList"
	KindStatus  = "Status"
	KindTop     = "QueryList"
	KindPredict = "Prediction"
	KindVerify  = "Verification"
	KindAlerts  = "AlertList"
)

// Head is what each document begins with.
type Head struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Time is the moment that the answer is about, WindowSeconds how far back the means go.
	Time          time.Time `json:"time"`
	WindowSeconds float64   `json:"windowSeconds"`
	// Prometheus is the one that was queried, Cluster the value of the label cluster to which its series were
	// restricted, nil if to none.
	Prometheus string  `json:"prometheus"`
	Cluster    *string `json:"cluster,omitempty"`
}

// Encode writes a document in one of the Formats.
func Encode(w io.Writer, document any, format string) error {
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return err
	}
	switch format {
	case "json":
		text = append(text, '\n')
	case "yaml":
		if text, err = yaml.JSONToYAML(text); err != nil {
			return err
		}
	default:
		return fmt.Errorf("no format %q", format)
	}
	_, err = w.Write(text)
	return err
}

// Of returns the schema of one kind of document, with the definitions that it refers to and no others.
func Of(kind string) (map[string]any, error) {
	var whole struct {
		Schema string                     `json:"$schema"`
		Defs   map[string]json.RawMessage `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(Schema), &whole); err != nil {
		return nil, err
	}
	defs := map[string]any{}
	for wanted := []string{kind}; len(wanted) > 0; wanted = wanted[1:] {
		name := wanted[0]
		if defs[name] != nil {
			continue
		}
		var def any
		if err := json.Unmarshal(whole.Defs[name], &def); err != nil {
			return nil, fmt.Errorf("definition %s: %w", name, err)
		}
		defs[name] = def
		wanted = slices.Concat(wanted, references(def))
	}
	return map[string]any{"$schema": whole.Schema, "type": "object", "$ref": "#/$defs/" + kind, "$defs": defs}, nil
}

// references are the names of the definitions that a part of the schema refers to.
func references(part any) (names []string) {
	switch part := part.(type) {
	case map[string]any:
		for key, value := range part {
			if to, ok := value.(string); ok && key == "$ref" {
				names = append(names, to[len("#/$defs/"):])
			} else {
				names = append(names, references(value)...)
			}
		}
	case []any:
		for _, value := range part {
			names = append(names, references(value)...)
		}
	}
	return names
}

// figure is nil for what was not measured, or is no time, count or share.
func figure(v float64) *float64 {
	if v >= 0 && !math.IsInf(v, 1) {
		return &v
	}
	return nil
}
