// Package chart proves the Helm chart with Helm itself and a real API server.
package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/manifests/release/stage"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/world"
)

// checkout is the folder of the chart in the checkout. It has the rules and dashboards for native histograms alone.
var checkout = filepath.Join(testkit.Root(), "manifests", "chart")

const registry = "image.registry=registry.example.org/plumbline"

var staged = struct {
	once   sync.Once
	folder string
	err    error
}{}

// chart is the folder of the chart as make chart writes it, with the rules and dashboards for every kind of histograms.
func chart(t *testing.T) string {
	t.Helper()
	helm := testkit.Tool(t, "helm")
	staged.once.Do(func() {
		if staged.folder, staged.err = os.MkdirTemp("", "plumbline-chart"); staged.err != nil {
			return
		}
		files, err := stage.Chart(helm, checkout)
		if staged.err = err; err == nil {
			staged.err = stage.Write(staged.folder, files)
		}
	})
	if staged.err != nil {
		t.Fatal(staged.err)
	}
	return filepath.Join(staged.folder, "plumbline")
}

func TestMain(m *testing.M) {
	if err := kubetest.Fetch(crds...); err != nil {
		fmt.Fprintln(os.Stderr, err) // the test that needs it fails
	}
	code := world.Run(m)
	os.RemoveAll(staged.folder)
	os.Exit(code)
}

// template renders the chart with these values, each a --set.
func template(t *testing.T, values ...string) ([]*unstructured.Unstructured, string, error) {
	t.Helper()
	text, err := kubetest.Helm(t, nil, append([]string{"template", "plumbline", chart(t), "--namespace=plumbline", "--kube-version=1.36.0"}, sets(values)...)...)
	if err != nil {
		return nil, text, err
	}
	return parse(t, text), text, nil
}

// render is template where it must not fail.
func render(t *testing.T, values ...string) []*unstructured.Unstructured {
	t.Helper()
	objects, text, err := template(t, values...)
	if err != nil {
		t.Fatal(text)
	}
	return objects
}

// parse returns the objects in a text of YAML.
func parse(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return kubetest.Read(t, file)
}

// find is the object of a kind and name.
func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("the chart makes no %s %s", kind, name)
	return nil
}

func sets(values []string) []string {
	var arguments []string
	for _, v := range values {
		arguments = append(arguments, "--set="+v)
	}
	return arguments
}

// matrix is the chart with each switch on and off, and all of them together.
var matrix = map[string][]string{
	"defaults":         {registry},
	"digest":           {registry, "image.digests.agent=sha256:" + strings.Repeat("a", 64), "image.pullSecrets={one,two}"},
	"other namespace":  {registry, "nodeNamespace=plumbline-node"},
	"no operator":      {registry, "prometheus.operator=false"},
	"release label":    {registry, "prometheus.release=monitoring-stack", "prometheus.labels.team=storage"},
	"longhorn":         {registry, "longhorn.enabled=true", "longhorn.namespace=lh", "longhorn.dataPaths={/var/lib/longhorn,/mnt/fast}"},
	"controls":         {registry, "control.storageClasses={disk,host}"},
	"openebs":          {registry, "openebs.enabled=true"},
	"every program":    append(switches(backends()...), registry, "verdict.events=true"),
	"mayastor address": {registry, "openebs.enabled=true", "openebs.mayastor.enabled=true", "openebs.mayastor.url=http://rest.storage:8081", "openebs.namespace=storage"},
	"canaries": {registry, "canaries[0].name=shop", "canaries[0].database=shop/shop-db", "canaries[0].storageclass=fast",
		"canaries[0].dsnSecret.name=shop-db-app", "canaries[1].name=books", "canaries[1].namespace=books", "canaries[1].engine=mysql", "canaries[1].rate=5",
		"canaries[1].database=books/books", "canaries[1].storageclass=fast", "canaries[1].dsnSecret.name=books", "canaries[1].dsnSecret.key=dsn"},
	"placement": {registry, "openebs.enabled=true", "placement.nodeSelector.pool=infra", "placement.tolerations[0].key=infra", "placement.tolerations[0].operator=Exists",
		"placement.priorityClassName=system-cluster-critical", "placement.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=kubernetes.io/hostname"},
	"more egress": {registry, "openebs.enabled=true", "openebs.mayastor.enabled=true", "openebs.mayastor.url=https://rest.example.org", "agent.extraEgress[0].ports[0].port=14318"},
	"trace":       {registry, "agent.trace.enabled=true", "agent.trace.sample=3", "agent.extraArgs={--trace.slowest=50}"},
	"otlp":        {registry, "agent.trace.enabled=true", "agent.trace.otlpEndpoint=https://collector.example.org/v1/traces"},
	"otlp port":   {registry, "agent.trace.enabled=true", "agent.trace.otlpEndpoint=http://tempo.tracing:4318/v1/traces"},
	"openshift":   {registry, "openshift.enabled=true"},
	"test at url": {registry, "prometheus.url=http://prometheus.metrics:9091/prom", "test.wait=1m30s", "podAnnotations.team=storage", "image.pullSecrets={one}"},
	"baselines": {registry, "baseline.enabled=true", "baseline.suspend=false", "baseline.duration=24h", "baseline.extraArgs={--expected-window=backup 02:00-02:30 UTC}", "image.pullSecrets={one}", "podAnnotations.team=storage", "canaries[0].name=shop",
		"canaries[0].database=shop/shop-db", "canaries[0].storageclass=fast", "canaries[0].rate=5", "canaries[0].dsnSecret.name=shop-db-app", "canaries[1].name=books",
		"canaries[1].namespace=books", "canaries[1].engine=mysql", "canaries[1].database=books/books", "canaries[1].storageclass=fast", "canaries[1].dsnSecret.name=books"},
	"environment": {registry, "agent.extraEnv[0].name=OTEL_EXPORTER_OTLP_HEADERS", "agent.extraEnv[0].valueFrom.secretKeyRef.name=otlp",
		"agent.extraEnv[0].valueFrom.secretKeyRef.key=headers", "agent.extraEnv[1].name=OTEL_EXPORTER_OTLP_TIMEOUT", "agent.extraEnv[1].value=5s"},
	"either":             {registry, "prometheus.histograms=either"},
	"classic":            {registry, "prometheus.histograms=classic", "longhorn.enabled=true", "dashboards.enabled=false"},
	"classic dashboards": {registry, "prometheus.histograms=classic", "rules.enabled=false"},
	"dropped metrics":    {registry, "prometheus.metricRelabelings[0].action=drop", "prometheus.metricRelabelings[0].regex=go_.*", "prometheus.metricRelabelings[0].sourceLabels={__name__}"},
	"longhorn over TLS":  {registry, "longhorn.enabled=true", "longhorn.node.grpcTLSSecret=longhorn-grpc-tls"},
	"no test":            {registry, "test.enabled=false"},
	"least":              {registry, "test.enabled=false", "rules.enabled=false", "dashboards.enabled=false", "networkPolicies.enabled=false", "priorityClass.create=false", "blockio.enabled=false"},
}

// sections are the parts of values.yaml.
var sections = func() (sections map[string]map[string]any) {
	text, err := os.ReadFile(filepath.Join(checkout, "values.yaml"))
	if err != nil {
		panic(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		panic(err)
	}
	sections = map[string]map[string]any{}
	for name, section := range values {
		if of, ok := section.(map[string]any); ok {
			sections[name] = of
		}
	}
	return sections
}()

// backends returns the names of the storage backends' sections, which have a switch and a namespace.
func backends() (names []string) {
	for name, of := range sections {
		if of["enabled"] != nil && of["namespace"] != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// switches turns on storage backends, and all that is off within their sections.
func switches(backends ...string) (sets []string) {
	var walk func(path string, of map[string]any)
	walk = func(path string, of map[string]any) {
		for name, value := range of {
			if inner, ok := value.(map[string]any); ok {
				walk(path+name+".", inner)
			} else if name == "enabled" && value == false {
				sets = append(sets, path+name+"=true")
			}
		}
	}
	for _, name := range backends {
		walk(name+".", sections[name])
	}
	slices.Sort(sets)
	return sets
}

// foreignMonitors returns how many monitors backend-monitors.yaml makes.
func foreignMonitors() int {
	text, err := os.ReadFile(filepath.Join(checkout, "templates", "backend-monitors.yaml"))
	if err != nil {
		panic(err)
	}
	return strings.Count(string(text), `include "plumbline.backendMonitor"`)
}

// TestLint has Helm lint the chart with the values of the matrix.
func TestLint(t *testing.T) {
	for name, values := range matrix {
		if text, err := kubetest.Helm(t, nil, append([]string{"lint", "--strict", chart(t)}, sets(values)...)...); err != nil {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// count is how many objects there are of each kind.
func count(objects []*unstructured.Unstructured) map[string]int {
	n := map[string]int{}
	for _, o := range objects {
		n[o.GetKind()]++
	}
	return n
}

// TestValues checks what single values do.
func TestValues(t *testing.T) {
	rules, _ := filepath.Glob(filepath.Join(testkit.Root(), "rules", "*.rules.yaml"))
	pages, _ := filepath.Glob(filepath.Join(testkit.Root(), "dashboards", "*.json"))
	for _, c := range []struct {
		name   string
		values []string
		kinds  map[string]int
		text   []string
		not    []string
	}{
		{"defaults", matrix["defaults"], map[string]int{"DaemonSet": 2, "PodMonitor": 2, "PrometheusRule": len(rules), "ConfigMap": len(pages) + 1, "PriorityClass": 1, "Deployment": 0},
			[]string{"image: registry.example.org/plumbline/agent:0.", "{{ $labels.storageclass }}"}, []string{":latest", "prometheus.io/scrape"}},
		{"test", matrix["defaults"], map[string]int{"Pod": 1}, []string{"--prometheus-url=http://prometheus-operated.monitoring:9090", "--wait=3m",
			"image: registry.example.org/plumbline/kubectl-plumbline:0.", "helm.sh/hook: test", "169.254.20.10/32", "openshift-dns"}, nil},
		{"test without the operator", matrix["no operator"], map[string]int{"Pod": 1}, []string{"--prometheus-url=http://prometheus-server.monitoring\n"}, nil},
		{"test at url", matrix["test at url"], map[string]int{"Pod": 1}, []string{"--prometheus-url=http://prometheus.metrics:9091/prom\n", "--wait=1m30s"}, nil},
		{"test of a cluster", append(matrix["test at url"], "prometheus.cluster=eu #1"), map[string]int{"Pod": 1}, []string{`- "--cluster=eu #1"`}, nil},
		{"no test", matrix["no test"], map[string]int{"Pod": 0}, nil, []string{"plumbline-test", "kubectl-plumbline"}},
		{"trace", matrix["trace"], map[string]int{"NetworkPolicy": 3}, []string{"- --kubernetes\n            - --collector.trace\n            - --trace.sample=3\n            - --trace.slowest=50\n"}, []string{"otlp"}},
		{"otlp", matrix["otlp"], map[string]int{"NetworkPolicy": 4}, []string{"- --trace.sample=10\n            - --trace.otlp-endpoint=https://collector.example.org/v1/traces\n", "- {port: 443, protocol: TCP}\n    - to:\n"}, nil},
		{"otlp port", matrix["otlp port"], map[string]int{"NetworkPolicy": 4}, []string{"- {port: 4318, protocol: TCP}\n"}, nil},
		{"not traced", append(matrix["otlp"], "agent.trace.enabled=false"), map[string]int{"NetworkPolicy": 3}, nil, []string{"--collector.trace", "--trace.", "otlp"}},
		{"environment", matrix["environment"], nil, []string{"            - name: OTEL_EXPORTER_OTLP_HEADERS\n              valueFrom:\n                secretKeyRef:\n                  key: headers\n                  name: otlp\n" +
			"            - name: OTEL_EXPORTER_OTLP_TIMEOUT\n              value: 5s\n"}, nil},
		{"digest", matrix["digest"], nil, []string{"registry.example.org/plumbline/agent@sha256:aaaa", `- name: "two"`}, nil},
		{"no operator", matrix["no operator"], map[string]int{"PodMonitor": 0, "PrometheusRule": 0, "ConfigMap": len(pages) + 2}, []string{`prometheus.io/port: "9437"`}, nil},
		{"release label", matrix["release label"], nil, []string{`release: "monitoring-stack"`, "team: storage"}, nil},
		{"every program", matrix["every program"], map[string]int{"DaemonSet": 3, "Deployment": 3, "PodMonitor": 6 + foreignMonitors(), "ServiceMonitor": 1},
			[]string{"--collector.cstor", "--collector.jiva", "--collector.diskpool", "--mayastor.url=http://openebs-api-rest.openebs:8081", "cstorvolumes", "jivavolumes"}, nil},
		{"mayastor address", matrix["mayastor address"], nil, []string{"--mayastor.url=http://rest.storage:8081", "matchNames: [storage]\n"}, []string{"--collector.cstor"}},
		{"longhorn", matrix["longhorn"], nil, []string{"mountPath: \"/host/mnt/fast\"\n              readOnly: true\n              mountPropagation: HostToContainer\n", "namespace: lh"}, []string{"longhorn-system", "grpc.tls-dir", "grpc-tls"}},
		{"longhorn over TLS", matrix["longhorn over TLS"], nil, []string{"            - --grpc.tls-dir=/etc/longhorn-grpc-tls\n", "- name: grpc-tls\n              mountPath: /etc/longhorn-grpc-tls\n              readOnly: true\n",
			"- name: grpc-tls\n          secret:\n            secretName: \"longhorn-grpc-tls\"\n"}, nil},
		{"canaries", matrix["canaries"], map[string]int{"Deployment": 2, "PodMonitor": 3}, []string{"--database=books/books", "--rate=5", "--engine=mysql\n", "--rate=10", "--engine=postgres\n", "key: dsn"}, []string{"=class"}},
		{"baselines", matrix["baselines"], map[string]int{"Deployment": 2, "CronJob": 2, "Role": 2, "RoleBinding": 2, "PrometheusRule": len(rules) + 2},
			[]string{"--kubernetes.prometheusrule=plumbline-baseline-books", "--duration=24h", "suspend: false", "--refuse-slower=0.15\n                - \"--expected-window=backup 02:00-02:30 UTC\"\n"}, []string{"=class"}},
		{"no baselines", matrix["canaries"], map[string]int{"CronJob": 0, "Role": 0, "PrometheusRule": len(rules)}, nil, []string{"plumbline-baseline-"}},
		{"native", matrix["longhorn"], nil, []string{"scrapeNativeHistograms: true", "convertClassicHistogramsToNHCB: true"}, []string{"Histograms: false", "NHCB: false"}},
		{"either", matrix["either"], map[string]int{"PrometheusRule": len(rules)}, []string{"scrapeNativeHistograms: true", "convertClassicHistogramsToNHCB: false"}, nil},
		{"classic", matrix["classic"], map[string]int{"PrometheusRule": len(rules)}, []string{"scrapeNativeHistograms: false", "convertClassicHistogramsToNHCB: false"},
			[]string{"scrapeNativeHistograms: true", "NHCB: true"}},
		{"every metric", matrix["every program"], nil, nil, []string{"metricRelabelings"}},
		{"controls", matrix["controls"], nil, []string{`classes: "disk,host"`, "checksum/controls: "}, nil},
		{"other namespace", matrix["other namespace"], nil, []string{"namespace: plumbline-node"}, nil},
		{"names like numbers", []string{registry, "priorityClass.create=false", "priorityClass.name=1e3", "placement.priorityClassName=2e3", "image.pullSecrets={3e3}"}, nil,
			[]string{`priorityClassName: "1e3"`, `priorityClassName: "2e3"`, `- name: "3e3"`}, nil},
		{"least", matrix["least"], map[string]int{"DaemonSet": 1, "PrometheusRule": 0, "ConfigMap": 1, "NetworkPolicy": 0, "PriorityClass": 0}, nil, []string{"priorityClassName"}},
	} { // one ConfigMap names the control classes
		t.Run(c.name, func(t *testing.T) {
			objects, text, err := template(t, c.values...)
			if err != nil {
				t.Fatal(text)
			}
			got := count(objects)
			for kind, n := range c.kinds {
				if got[kind] != n {
					t.Errorf("%d of %s, want %d", got[kind], kind, n)
				}
			}
			for _, want := range c.text {
				if !strings.Contains(text, want) {
					t.Errorf("no %q", want)
				}
			}
			for _, not := range c.not {
				if strings.Contains(text, not) {
					t.Errorf("has %q", not)
				}
			}
		})
	}
}

// TestRefused checks that a wrong value is an error that explains what to do.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		values []string
		want   string
	}{
		"no registry":               {nil, "image.registry is empty: give the registry"},
		"latest":                    {[]string{registry, "image.tag=latest"}, "image.tag is latest"},
		"unknown key":               {[]string{registry, "agnet.enabled=false"}, "agnet"},
		"unknown image":             {[]string{registry, "image.digests.agnet=sha256:" + strings.Repeat("a", 64)}, "agnet"},
		"no digest":                 {[]string{registry, "image.digests.agent=abc"}, "digests"},
		"prometheus over TLS":       {[]string{registry, "prometheus.url=https://prometheus.monitoring"}, "url"},
		"endless test":              {[]string{registry, "test.wait=forever"}, "wait"},
		"baseline of nothing":       {[]string{registry, "baseline.enabled=true"}, "canaries is empty"},
		"baseline without operator": {append([]string{"prometheus.operator=false"}, matrix["baselines"]...), "needs prometheus.operator"},
		"long name":                 {[]string{registry, "canaries[0].name=" + strings.Repeat("a", 44), "canaries[0].database=a", "canaries[0].storageclass=a", "canaries[0].dsnSecret.name=a"}, "name"},
		"canary of no class":        {[]string{registry, "canaries[0].name=a", "canaries[0].database=a", "canaries[0].dsnSecret.name=a"}, "storageclass"},
		"no API server's ports":     {[]string{registry, "networkPolicies.apiServerPorts=null"}, "networkPolicies.apiServerPorts is missing"},
		"port of no number":         {[]string{registry, "networkPolicies.apiServerPorts={70000}"}, "/networkPolicies/apiServerPorts/0'"},
		"chart's own variable":      {[]string{registry, "agent.extraEnv[0].name=NODE_NAME", "agent.extraEnv[0].value=a"}, "/agent/extraEnv/0/name'"},
		"variable of no name":       {[]string{registry, "agent.extraEnv[0].value=a"}, "/agent/extraEnv/0'"},
		"relabeling of no key":      {[]string{registry, "prometheus.metricRelabelings[0].sourceLabel=a"}, "/prometheus/metricRelabelings/0': additional properties 'sourceLabel'"},
		"value of an older chart":   {[]string{registry, "prometheus.metrics=read"}, "'/prometheus': additional properties 'metrics'"},
		"string for a switch":       {[]string{registry, "blockio.enabled=maybe"}, "'/blockio/enabled': got string, want boolean"},
		"relative data path":        {[]string{registry, "longhorn.dataPaths={data}"}, "dataPaths"},
		"engine":                    {[]string{registry, "canaries[0].name=a", "canaries[0].database=a", "canaries[0].storageclass=b", "canaries[0].dsnSecret.name=a", "canaries[0].engine=oracle"}, "engine"},
	} {
		t.Run(name, func(t *testing.T) {
			_, text, err := template(t, c.values...)
			if err == nil || !strings.Contains(text, c.want) {
				t.Errorf("%v: %.500s", err, text)
			}
		})
	}
}

// refusesJSON checks that the chart refuses a value that is given as JSON, with an error that has what is wanted.
func refusesJSON(t *testing.T, value, want string) {
	t.Helper()
	text, err := kubetest.Helm(t, nil, "template", "plumbline", chart(t), "--set="+registry, "--set-json="+value)
	if err == nil || !strings.Contains(text, want) {
		t.Errorf("%s: want an error that has %q: %v: %.500s", value, want, err, text)
	}
}

// TestSchema checks that each value has a type and a description in the schema, and that values.yaml has each value of
// the schema.
func TestSchema(t *testing.T) {
	var schema map[string]any
	if err := json.Unmarshal([]byte(read(t, filepath.Join(checkout, "values.schema.json"))), &schema); err != nil {
		t.Fatal(err)
	}
	definitions := schema["definitions"].(map[string]any)
	// Kubernetes' own fields need no default.
	without := []string{"/global", "/nodeAffinity/preferredDuringSchedulingIgnoredDuringExecution", "/placement/affinity/nodeAffinity",
		"/placement/affinity/podAffinity", "/placement/affinity/podAntiAffinity"}
	seen := 0
	var check func(path string, schema map[string]any, value any)
	check = func(path string, schema map[string]any, value any) {
		seen++
		if ref, ok := schema["$ref"].(string); ok {
			if schema, ok = definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any); !ok {
				t.Errorf("%s: no definition %s", path, ref)
				return
			}
		}
		if schema["type"] == nil || schema["description"] == nil && path != "" {
			t.Errorf("%s has the type %v and the description %v", path, schema["type"], schema["description"])
		}
		if of, ok := schema["items"].(map[string]any); ok && of["properties"] != nil {
			check(path+"[]", of, nil)
		}
		properties, _ := schema["properties"].(map[string]any)
		if len(properties) > 0 && schema["additionalProperties"] != false {
			t.Errorf("%s takes keys that are none of its own", path)
		}
		keys, inValues := value.(map[string]any)
		for name, p := range properties {
			value, ok := keys[name]
			if inValues && !ok && !slices.Contains(without, path+"/"+name) {
				t.Errorf("values.yaml has no %s/%s", path, name)
			}
			check(path+"/"+name, p.(map[string]any), value)
		}
	}
	var values map[string]any
	if err := yaml.Unmarshal([]byte(read(t, filepath.Join(checkout, "values.yaml"))), &values); err != nil {
		t.Fatal(err)
	}
	check("", schema, values)
	if seen < 120 {
		t.Errorf("only %d values have a schema", seen)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
