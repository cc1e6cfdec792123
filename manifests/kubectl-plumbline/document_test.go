package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/loadgen/predict/input"
	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
	"github.com/plumbline/plumbline/tests/schematest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// at returns a cluster with Prometheus only.
func at(t *testing.T, prometheus http.Handler, o options) *cluster {
	t.Helper()
	server := httptest.NewServer(prometheus)
	t.Cleanup(server.Close)
	o.url, o.window = server.URL, 20*time.Second
	return &cluster{o: o, none: errNoCluster, now: func() time.Time { return whytest.End }}
}

// document requests JSON, YAML and text, and returns the document. It fails unless the first two have the same values,
// as the schema describes them.
func document[D any](t *testing.T, c *cluster, do replyFunc) (d D, text string, err error) {
	t.Helper()
	out := map[string]string{}
	for _, format := range []string{"json", "yaml", "text"} {
		var b strings.Builder
		one := *c
		one.o.output = format
		failed := one.give(t.Context(), &b, why.PlainPrinter(&b), do)
		if out[format] = b.String(); format != "json" && (failed == nil) != (err == nil) {
			t.Errorf("%s: %v, but %v", format, failed, err)
		}
		err = failed
	}
	if out["json"] == "" {
		if err == nil || out["yaml"]+out["text"] != "" {
			t.Errorf("no document, and %v:\n%s", err, out["yaml"]+out["text"])
		}
		return d, "", err
	}
	value := schematest.Value(t, []byte(out["json"]))
	schematest.Valid(t, schematest.Compile(t, answer.Schema), []byte(out["json"]))
	if back, failed := yaml.YAMLToJSON([]byte(out["yaml"])); failed != nil || !reflect.DeepEqual(schematest.Value(t, back), value) {
		t.Errorf("%v: YAML\n%s\nJSON\n%s", failed, out["yaml"], out["json"])
	}
	if strings.ContainsAny(out["json"]+out["yaml"], "\x1b\x07\u202e") || strings.Contains(out["json"], `\u001b`) {
		t.Errorf("what a terminal obeys is in\n%s", out["json"])
	}
	if failed := json.Unmarshal([]byte(out["json"]), &d); failed != nil {
		t.Fatal(failed)
	}
	return d, out["text"], err
}

// slow is a lab in which replica r3-2 is slow.
func slow() *whytest.Lab {
	l := whytest.Healthy()
	l.Trip["r3-2"], l.Device["r3"], l.Commit["r3"]["sync"] = 11, 14, 15
	return l
}

// A finding's document names what its sentence names, with the figures as they were recorded.
func TestWhyDocument(t *testing.T) {
	c := at(t, slow().Record().Handler(nil), options{target: "class/r3"})
	d, text, err := document[answer.Why](t, c, (*cluster).queryWhy)
	if err != nil || len(d.Items) != 1 {
		t.Fatal(d, err)
	}
	f := d.Items[0]
	if v := f.Verdict; v.Reason != why.SlowReplica || len(v.Culprits) != 1 || v.Culprits[0].Replica != "r3-2" || v.Culprits[0].Layer != "network" || v.Culprits[0].Confidence != 0.9 {
		t.Errorf("verdict %+v", v)
	}
	near := func(what string, got *float64, want float64) {
		if got == nil || *got < 0.99*want || *got > 1.01*want {
			t.Errorf("%s is %v, want %g", what, got, want)
		}
	}
	near("mean", f.Statement.MeanSeconds, 0.0161)
	near("write", f.Write.MeanSeconds, 0.014)
	near("ratio", f.Control.Ratio, 16.1/2.2)
	near("round trip", f.Replicas[1].RoundTripSeconds, 0.011)
	near("healthy", f.HealthyReplicas, 3)
	if want := (answer.Target{Node: "n", Server: "r3", DBSystem: "postgresql", Volume: "v-r3", Device: "dev-r3", Namespace: "lab", PersistentVolumeClaim: "data-r3",
		StorageClass: "r3", Backend: "b"}); f.Target != want {
		t.Errorf("target %+v", f.Target)
	}
	if f.Statement.Kind != "commit" || f.Flush != nil || f.BlockedStatements != nil {
		t.Errorf("%+v", f)
	}
	// In the text each part of the sentence is a line.
	flat := func(text string) string { return strings.Join(strings.Fields(strings.ReplaceAll(text, ";", "")), " ") }
	if !strings.HasPrefix(flat(text), flat(f.Words)) || !strings.Contains(f.Words, f.Verdict.Text) {
		t.Errorf("the sentence is %q, the text\n%s", f.Words, text)
	}
	if h := d.Head; h.Kind != answer.KindWhy || !h.Time.Equal(whytest.End) || h.WindowSeconds != 20 || h.Prometheus != c.o.url && !strings.HasPrefix(h.Prometheus, "http://127.0.0.1:") || h.Cluster != nil {
		t.Errorf("head %+v", h)
	}
}

// The document of a pod lists the claims that Prometheus does not know, and has the findings of the others.
func TestWhyDocumentOfPod(t *testing.T) {
	c := refusing(t, map[string]string{"/api/v1/namespaces/lab/pods/p": `{"spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"data-r3"}},
		{"persistentVolumeClaim":{"claimName":"gone"}},{"persistentVolumeClaim":{"claimName":"data-r1"}}]}}`})
	c.o.target, c.o.namespace = "pod/p", "lab"
	d, text, err := document[answer.Why](t, c, (*cluster).queryWhy)
	if err != nil || len(d.Items) != 2 || d.Items[1].Target.Server != "r1" || len(d.Unknown) != 1 || d.Unknown[0] != "claim lab/gone" ||
		!strings.Contains(text, "claim lab/gone: Prometheus has nothing of it") {
		t.Errorf("%+v, %v\n%s", d, err, text)
	}
}

func TestStatusDocument(t *testing.T) {
	alerts := func() http.Handler {
		r := slow().Record()
		for _, class := range []string{"r3", "r1"} {
			r.Gauge(`ALERTS{alertname="CanarySlow",alertstate="firing",severity="warning",part_of="plumbline",storageclass="`+class+`"}`, 1)
		}
		return r.Handler(map[string]map[string]string{"CanarySlow": {"summary": "It is slow.", "runbook_url": "https://example.org/rules/runbooks/x.md"}})
	}
	c := at(t, alerts(), options{})
	d, text, err := document[answer.Status](t, c, (*cluster).queryStatus)
	if err != nil || len(d.Classes) != 3 || d.Classes[2].Finding.Verdict.Reason != why.SlowReplica || len(d.Alerts.Firing) != 2 || d.Alerts.Unknown != "" {
		t.Errorf("%+v, %v", d, err)
	}
	// Two alerts of one sentence are one line for a person.
	if strings.Count(text, "CanarySlow (0s): It is slow.") != 1 || d.Alerts.Firing[0].StorageClass == d.Alerts.Firing[1].StorageClass {
		t.Errorf("%+v\n%s", d.Alerts.Firing, text)
	}
	if d.Agents.Unknown == "" || d.Agents.Silent != nil || d.Agents.LinuxNodes != nil || d.Agents.Heard == nil {
		t.Errorf("nodes are unknown: %+v", d.Agents)
	}
	known := central(t)
	known.o.cluster, known.o.clusterNamed = "eu", true
	if d, _, err = document[answer.Status](t, known, (*cluster).queryStatus); err != nil || len(d.Agents.Heard) != 1 || len(d.Agents.Silent) != 1 || d.Agents.Silent[0] != "only-there" ||
		*d.Agents.LinuxNodes != 2 || *d.Cluster != "eu" || len(d.Alerts.Firing) != 1 {
		t.Errorf("%+v, %v", d, err)
	}
	// A store without alerts of its own: they are unknown, and not none.
	without := http.NewServeMux()
	without.Handle("/", lab())
	without.HandleFunc("/api/v1/alerts", http.NotFound)
	if d, _, err = document[answer.Status](t, at(t, without, options{}), (*cluster).queryStatus); err != nil || d.Alerts.Firing != nil || d.Alerts.Unknown == "" {
		t.Errorf("%+v, %v", d.Alerts, err)
	}
	if d, _, err = document[answer.Status](t, at(t, empty(), options{}), (*cluster).queryStatus); err != nil || d.Classes == nil || len(d.Classes)+len(d.Alerts.Firing) != 0 || d.Alerts.Firing == nil {
		t.Errorf("of an empty store: %+v, %v", d, err)
	}
}

// A prediction has its figures, or its refusal and exit code.
func TestPredictionDocument(t *testing.T) {
	of := func(target, to string) (answer.Prediction, string, error) {
		c := at(t, lab(), options{target: target, predict: input.Question{Class: to, Windows: 4}})
		return document[answer.Prediction](t, c, (*cluster).queryPredict)
	}
	d, text, err := of("server/r1", "r3")
	if err != nil || d.Refusal != nil || len(d.Statements) == 0 || d.From != "r1" || d.To != "r3" || d.Windows != 4 {
		t.Fatalf("%+v, %v", d, err)
	}
	predicted := 0
	for _, s := range d.Statements {
		if s.Refusal == nil && s.Median != nil && s.Median.Low > 0 && s.Median.Low <= s.Median.Expected && s.Median.Expected <= s.Median.High {
			predicted++
		}
	}
	if predicted == 0 || !strings.Contains(text, "r1, from r1 to r3") {
		t.Errorf("%+v\n%s", d, text)
	}
	d, text, err = of("class/r1", "gold")
	if err == nil || d.Refusal == nil || d.Statements != nil || !strings.Contains(text, d.Refusal.Text[1:]) {
		t.Errorf("%+v, %v\n%s", d, err, text)
	}
}

func TestVerificationDocument(t *testing.T) {
	c := central(t)
	d, _, err := document[answer.Verification](t, c, (*cluster).queryVerify)
	if err == nil || d.Whole || len(d.Links) != 1 || d.Links[0].Name != "cluster" || !strings.Contains(d.Links[0].Missing, `"eu"`) || len(d.Next) == 0 {
		t.Errorf("of two clusters: %+v, %v", d, err)
	}
	c.o.cluster, c.o.clusterNamed = "eu", true
	if d, _, err = document[answer.Verification](t, c, (*cluster).queryVerify); err != nil || !d.Whole || len(d.Joined) != 3 || d.Next != nil || d.Joined[0].Claim != "data-local" {
		t.Errorf("%+v, %v", d, err)
	}
	c = &cluster{o: options{url: "http://reader:secret@" + testkit.FreeAddress(t), window: time.Minute}, now: func() time.Time { return whytest.End }}
	d, text, err := document[answer.Verification](t, c, (*cluster).queryVerify)
	if err == nil || d.Whole || d.Links[0].Name != "Prometheus" || strings.Contains(fmt.Sprint(d, text, err), "secret") {
		t.Errorf("of no Prometheus: %+v, %v", d, err)
	}
}

// What cannot be answered has no document, whatever the form.
func TestNoDocument(t *testing.T) {
	away := "http://" + testkit.FreeAddress(t)
	for name, o := range map[string]options{
		"unknown":       {target: "class/gold"},
		"no target":     {target: "pod/"},
		"nowhere":       {target: "class/r3", predict: input.Question{Windows: 4}},
		"no Prometheus": {target: "class/r3", predict: input.Question{Class: "r1", Windows: 4}, url: away},
	} {
		for command, do := range map[string]replyFunc{"why": (*cluster).queryWhy, "predict": (*cluster).queryPredict, "status": (*cluster).queryStatus, "alerts": (*cluster).queryAlerts} {
			c := at(t, lab(), o)
			if o.url != "" {
				c.o.url = o.url
			} else if command == "status" || command == "alerts" || command == "why" && name == "nowhere" {
				continue
			}
			if d, _, err := document[map[string]any](t, c, do); err == nil || d != nil {
				t.Errorf("%s of %s: %v, %v", command, name, d, err)
			}
		}
	}
}

// Names that are hostile are data: cleaned, and in their own fields.
func TestHostileDocument(t *testing.T) {
	const bad = "\x1b[2J\u202e\"}],\n- kind: x # "
	quoted := fmt.Sprintf("%q", bad)
	r := slow().Record()
	r.Gauge(`ALERTS{alertname=`+quoted+`,alertstate="firing",severity=`+quoted+`,part_of="plumbline",node="n",device=`+quoted+`,volume="v-r3",replica=`+quoted+`}`, 1)
	r.Gauge(`plumbline_volume_replica_info{volume="v-r3",replica=`+quoted+`,address=`+quoted+`,node=`+quoted+`,device=`+quoted+`}`, 1)
	r.Times(`plumbline_replica_request_duration_seconds{volume="v-r3",address=`+quoted+`,op="write"}`, 50, 1)
	r.Counter(`plumbline_query_phase_seconds_total{server="r3",node="n",command="commit",phase=`+quoted+`}`, 1)
	r.Gauge(`plumbline_feature_available{node=`+quoted+`,feature="statements"}`, 1)
	r.Gauge(`plumbline_unidentified_objects{node=`+quoted+`,kind=`+quoted+`,reason=`+quoted+`}`, 1)
	handler := r.Handler(map[string]map[string]string{bad: {"summary": bad, "runbook_url": bad}})
	for command, do := range map[string]replyFunc{"why": (*cluster).queryWhy, "status": (*cluster).queryStatus, "alerts": (*cluster).queryAlerts, "verify": (*cluster).queryVerify, "predict": (*cluster).queryPredict} {
		c := at(t, handler, options{target: "class/r3", predict: input.Question{Class: "r1", Windows: 4}})
		if command == "alerts" {
			reply, err := c.queryAlerts(t.Context())
			if err != nil || !strings.Contains(fmt.Sprintf("%+v", reply.document), why.Clean(bad)) {
				t.Errorf("%+v, %v", reply, err)
			}
			schematest.Valid(t, schematest.Compile(t, answer.Schema), reply.document)
			continue
		}
		if d, _, err := document[map[string]any](t, c, do); d == nil || command != "verify" && command != "predict" && (err != nil || !strings.Contains(fmt.Sprint(d), why.Clean(bad))) {
			t.Errorf("%s: %v, %v", command, d, err)
		}
	}
}

// A name goes into a path of the API server's: it cannot lead to another object.
func TestNamesAreNoPaths(t *testing.T) {
	for _, o := range []options{{target: "../../secrets/db"}, {target: "pod/../../../services/evil:80/proxy/x"}, {target: "a%2f.."}, {target: "pod/A_B"}} {
		c := refusing(t, nil)
		c.o.target, c.o.namespace = o.target, "lab"
		// It is refused as a wrong command line, before any request.
		if _, err := c.runWhy(t); !errors.As(err, &usageError{}) {
			t.Errorf("%s: %v", o.target, err)
		}
	}
	for _, namespace := range []string{"../x", "a/b", "A", strings.Repeat("a", 64)} {
		o := options{namespace: namespace, window: time.Minute}
		if o.check() == nil {
			t.Errorf("namespace %q is taken", namespace)
		}
	}
}
