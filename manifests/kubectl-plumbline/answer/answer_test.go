package answer

import (
	"encoding/json"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/usual"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/tests/schematest"
)

// documents are those of each kind with every field that there is.
func documents() map[string]any {
	all := map[string]any{KindWhy: &Why{}, KindStatus: &Status{}, KindTop: &Top{}, KindPredict: &Prediction{}, KindVerify: &Verification{}, KindAlerts: &AlertList{}}
	for kind, d := range all {
		v := reflect.ValueOf(d).Elem()
		schematest.Fill(v)
		h := v.FieldByName("Head").Addr().Interface().(*Head)
		h.APIVersion, h.Kind = Version, kind
		switch d := d.(type) {
		case *Why:
			fit(&d.Items[0])
		case *Status:
			fit(d.Classes[0].Finding)
		case *Prediction:
			d.Refusal.Reason, d.Statements[0].Refusal.Reason = predict.Saturation, predict.Rare
		}
	}
	return all
}

// fit gives a filled finding values that lists allow.
func fit(f *Finding) {
	f.Statement.Kind, f.Control.Statement.Kind = "commit", "statement"
	f.Verdict.Reason, f.Verdict.Culprits[0].Reason = why.Stalled, why.Lock
	f.Usual[0].Operation, f.Usual[0].Verdict, f.Usual[0].Candidates[0].Verdict = usual.Sync, usual.Slow, usual.Fast
}

// Every field that a document can have is in the schema, and what the schema has is there.
func TestSchemaIsWhole(t *testing.T) {
	whole := schematest.Compile(t, Schema)
	for kind, d := range documents() {
		schematest.Valid(t, whole, d)
		of, err := Of(kind)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(of)
		if err != nil {
			t.Fatal(err)
		}
		one := schematest.Compile(t, string(text))
		schematest.Valid(t, one, d)
		schematest.Whole(t, kind, one.Ref, schematest.Value(t, d))
		for other, d := range documents() {
			if other != kind && one.Validate(schematest.Value(t, d)) == nil {
				t.Errorf("the schema of %s takes a %s", kind, other)
			}
		}
	}
	if of, err := Of(KindAlerts); err != nil || len(of["$defs"].(map[string]any)) != 3 {
		t.Errorf("an AlertList's schema has more than it refers to: %v, %v", of, err)
	}
}

// What is wrong is refused: the schema is not one that takes anything.
func TestSchemaRefuses(t *testing.T) {
	s := schematest.Compile(t, Schema)
	for what, spoil := range map[string]func(d, finding map[string]any){
		"an unknown field":            func(d, _ map[string]any) { d["more"] = 1 },
		"an unknown field of an item": func(_, f map[string]any) { f["more"] = 1 },
		"no items":                    func(d, _ map[string]any) { delete(d, "items") },
		"another version":             func(d, _ map[string]any) { d["apiVersion"] = "plumbline.io/v1" },
		"another kind":                func(d, _ map[string]any) { d["kind"] = KindStatus },
		"a time that is none":         func(d, _ map[string]any) { d["time"] = "yesterday" },
		"a figure below 0":            func(_, f map[string]any) { f["write"].(map[string]any)["meanSeconds"] = -1 },
		"a figure in words":           func(_, f map[string]any) { f["write"].(map[string]any)["meanSeconds"] = "NaN" },
		"an unknown reason":           func(_, f map[string]any) { f["verdict"].(map[string]any)["reason"] = "the moon" },
		"a layer without a name": func(_, f map[string]any) {
			f["write"].(map[string]any)["layers"].([]any)[0].(map[string]any)["layer"] = ""
		},
	} {
		d := schematest.Value(t, documents()[KindWhy]).(map[string]any)
		spoil(d, d["items"].([]any)[0].(map[string]any))
		if s.Validate(d) == nil {
			t.Errorf("%s is taken", what)
		}
	}
}

// The lists of words are the same in the schema and in the program.
func TestSchemaEnums(t *testing.T) {
	var parsed struct {
		Defs struct {
			Layer   struct{ AnyOf []struct{ Enum []string } }
			Reason  struct{ Enum []why.Reason }
			Refusal struct {
				Properties struct {
					Reason struct{ Enum []predict.Reason }
				}
			}
		} `json:"$defs"`
	}
	if err := json.Unmarshal([]byte(Schema), &parsed); err != nil {
		t.Fatal(err)
	}
	all := layers.Names(func(layers.Layer) bool { return true })
	if got := parsed.Defs.Layer.AnyOf[0].Enum; !slices.Equal(got, all) {
		t.Errorf("layers: %q in the schema, %q in rules/layers", got, all)
	}
	if got := parsed.Defs.Reason.Enum; !slices.Equal(got, why.Reasons) {
		t.Errorf("reasons: %q in the schema, %q in rules/why", got, why.Reasons)
	}
	if got := parsed.Defs.Refusal.Properties.Reason.Enum; !slices.Equal(got, predict.Reasons) {
		t.Errorf("refusals: %q in the schema, %q in loadgen/predict", got, predict.Reasons)
	}
}

// Of what nothing was measured there is no figure: not one that is 0, and none that JSON has no word for.
func TestNothingMeasured(t *testing.T) {
	nan, endless := math.NaN(), math.Inf(1)
	none := why.Statement{Count: nan, Mean: nan, P99: nan}
	f := &why.Finding{Target: why.Target{Server: "s"}, Commits: none, Statements: none,
		Write:    why.Write{Count: nan, Total: endless, Queue: nan, Device: nan, Path: nan, Engine: -1, FlushCount: nan, Flush: nan, FlushQueue: nan, FlushDevice: nan},
		Replicas: []why.Replica{{Name: "r", Count: nan, RoundTrip: nan, Service: nan, Disk: nan, LastShare: nan, Unread: nan, Stopped: nan}},
		Healthy:  nan, Desired: nan, Blocked: nan, BlockedFor: nan, CPUWaiting: nan, Control: &why.Control{Statement: none, Ratio: nan},
		Stall: &why.Stall{Layer: "device", Seconds: nan}, Verdict: why.Verdict{Culprit: why.Culprit{Reason: why.Few}}}
	d := &Why{Head: Head{APIVersion: Version, Kind: KindWhy}, Items: []Finding{NewFinding(f)}}
	schematest.Valid(t, schematest.Compile(t, Schema), d)
	for name, value := range schematest.Value(t, d).(map[string]any)["items"].([]any)[0].(map[string]any) {
		if _, ok := value.(json.Number); ok && name != "servers" {
			t.Errorf("%s is %v", name, value)
		}
	}
	text, _ := json.Marshal(d)
	for _, not := range []string{`"write":`, `"flush":`, "Seconds\":0,", "count"} {
		if strings.Contains(strings.Replace(string(text), `"windowSeconds":0,`, "", 1), not) {
			t.Errorf("%q is in %s", not, text)
		}
	}
}

// The formats have the same values.
func TestEncode(t *testing.T) {
	for kind, d := range documents() {
		var text, other strings.Builder
		if err := Encode(&text, d, "json"); err != nil {
			t.Fatal(err)
		}
		if err := Encode(&other, d, "yaml"); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(text.String(), "{\n  \"apiVersion\": \"plumbline.io/v1alpha1\",\n  \"kind\": \""+kind) || !strings.HasSuffix(text.String(), "}\n") {
			t.Errorf("JSON begins or ends otherwise:\n%s", &text)
		}
		if back := fromYAML(t, other.String()); !reflect.DeepEqual(back, schematest.Value(t, []byte(text.String()))) {
			t.Errorf("YAML differs:\n%s\n%s", &other, &text)
		}
	}
	if err := Encode(&strings.Builder{}, &Why{}, "xml"); err == nil {
		t.Error("a format that is none is written")
	}
}

func fromYAML(t *testing.T, text string) any {
	t.Helper()
	back, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return schematest.Value(t, back)
}
