package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// part is one template: the objects of one kustomization that a switch in the values turns on.
type part struct {
	template string // file below templates
	from     string // kustomization below manifests/kubernetes
	when     string // the template's condition
	values   string // where the program's values are, as $.Values.agent
	image    string // the image's name
	engine   string // where the storage engine's namespace is in the values; empty if it has none
	change   func(o object)
	options  []option
	only     string // kinds, or kind/name, with blanks between: the rest of the kustomization is left out
	each     bool   // the condition is a list, and the objects are made for each of its items
}

// option is a component of the part's kustomization that a switch of its own turns on.
type option struct{ dir, when string }

var parts = []part{
	{template: "priorityclass.yaml", from: "base", only: "PriorityClass", when: "$.Values.priorityClass.create"},
	{template: "agent.yaml", from: "base/agent", when: "$.Values.agent.enabled", values: "$.Values.agent", image: "agent", change: agent, options: []option{
		{"optional/trace", "$.Values.agent.trace.enabled"},
		{"optional/trace/otlp", "and $.Values.agent.trace.enabled $.Values.agent.trace.otlpEndpoint"},
	}},
	{template: "blockio.yaml", from: "base/blockio", when: "$.Values.blockio.enabled", values: "$.Values.blockio", image: "blockio"},
	{template: "longhorn.yaml", from: "engines/longhorn/cluster", when: "$.Values.longhorn.enabled", values: "$.Values.longhorn",
		image: "longhorn-exporter", engine: "longhorn-system"},
	{template: "longhorn-node.yaml", from: "engines/longhorn/node", when: "$.Values.longhorn.enabled", values: "$.Values.longhorn.node",
		image: "longhorn-exporter", engine: "longhorn-system", change: dataPaths},
	{template: "longhorn-manager.yaml", from: "engines/longhorn", only: "ServiceMonitor", when: "$.Values.longhorn.enabled", values: "$.Values.longhorn",
		engine: "longhorn-system", change: longhornManager},
	{template: "canaries.yaml", from: "load/canary", only: "Deployment/canary-postgresql", when: "$.Values.canaries", each: true,
		values: "$.Values.canary", image: "loadgen", change: canary},
	{template: "canaries-monitor.yaml", from: "load/canary", only: "PodMonitor/load", when: "$.Values.canaries", change: canariesMonitor},
	{template: "baselines.yaml", from: "load/baseline", each: true, when: "ternary $.Values.canaries (list) $.Values.baseline.enabled",
		only:   "CronJob/baseline-postgresql ServiceAccount Role RoleBinding PrometheusRule/plumbline-baseline-postgresql",
		values: "$.Values.baseline", image: "loadgen", change: baseline},
	{template: "openebs.yaml", from: "engines/openebs", when: "$.Values.openebs.enabled", values: "$.Values.openebs",
		image: "openebs-exporter", engine: "openebs", change: openebsAddresses, options: []option{
			{"engines/openebs/mayastor", "$.Values.openebs.mayastor.enabled"},
			{"engines/openebs/cstor", "$.Values.openebs.cstor.enabled"},
			{"engines/openebs/jiva", "$.Values.openebs.jiva.enabled"},
		}},
}

const notice = "{{- /* Made by manifests/chart/generate from manifests/kubernetes/%s; change that. */ -}}\n"

// write renders the part's objects and writes its template.
func (p part) write(root, out string) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("parts.go fell behind the manifests: %v", r)
		}
	}()
	objects, err := render(root, p.from)
	if err != nil {
		return err
	}
	objects = slices.DeleteFunc(objects, func(o object) bool {
		return p.only != "" && !slices.Contains(strings.Fields(p.only), o["kind"].(string)) && !slices.Contains(strings.Fields(p.only), name(o))
	})
	if len(objects) == 0 {
		return fmt.Errorf("%s has no %s", p.from, p.only)
	}
	var b strings.Builder
	fmt.Fprintf(&b, notice, p.from)
	if p.each {
		fmt.Fprintf(&b, "{{- range %s }}\n", p.when)
	} else {
		fmt.Fprintf(&b, "{{- if %s }}\n", p.when)
	}
	optional, err := p.addOptions(root, objects)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := p.object(&b, o); err != nil {
			return err
		}
	}
	for i, added := range optional {
		if len(added) == 0 {
			continue
		}
		fmt.Fprintf(&b, "{{- if %s }}\n", p.options[i].when)
		for _, o := range added {
			if err := p.object(&b, o); err != nil {
				return err
			}
		}
		b.WriteString("{{- end }}\n")
	}
	b.WriteString("{{- end }}\n")
	return os.WriteFile(filepath.Join(out, p.template), []byte(b.String()), 0o644)
}

// object writes one object's template.
func (p part) object(b *strings.Builder, o object) error {
	p.holes(o)
	text, err := fill(o)
	if err != nil {
		return err
	}
	open, close := condition(o)
	b.WriteString(open + "---\n" + text + close)
	return nil
}

// condition is what an object's kind depends on besides its part's switch.
func condition(o object) (open, close string) {
	switch o["kind"] {
	case "NetworkPolicy":
		return "{{- if $.Values.networkPolicies.enabled }}\n", "{{- end }}\n"
	case "PodMonitor", "ServiceMonitor":
		return "{{- if $.Values.prometheus.operator }}\n", "{{- end }}\n"
	}
	return "", ""
}

const releaseNamespace, nodeNamespace = "$.Release.Namespace", `include "plumbline.nodeNamespace" $`

const nameLabel = "app.kubernetes.io/name"

// namespaces are the holes that the kustomizations' two namespaces become.
var namespaces = map[string]string{"plumbline": hole(releaseNamespace), "plumbline-node": hole(nodeNamespace)}

// holes makes the holes that every object of its kind has, then the part's own.
func (p part) holes(o object) {
	if n, ok := at(o, "metadata", "namespace").(string); ok {
		o["metadata"].(object)["namespace"] = p.namespace(n)
	}
	labels, _ := at(o, "metadata", "labels").(object)
	if labels == nil {
		labels = object{}
		o["metadata"].(object)["labels"] = labels
	}
	labels["app.kubernetes.io/part-of"] = "plumbline"
	switch o["kind"] {
	case "DaemonSet", "Deployment":
		p.workload(o)
	case "NetworkPolicy":
		if len(at(o, "spec", "podSelector").(object)) == 0 {
			panic(name(o) + " selects every pod of its namespace, and a release's namespace may have others' pods")
		}
		apiServer(o)
	case "PodMonitor", "ServiceMonitor":
		labels[lines(`include "plumbline.monitorLabels" $`)] = ""
		monitorHistograms(o["spec"].(object))
		if endpoint, ok := at(o, "spec", "podMetricsEndpoints", 0).(object); ok {
			endpoint["metricRelabelings"] = block(`include "plumbline.metricRelabelings" $ | fromYamlArray`)
		}
	case "ClusterRoleBinding", "RoleBinding":
		for i := range o["subjects"].([]any) {
			if n, ok := at(o, "subjects", i, "namespace").(string); ok {
				set(o, p.namespace(n), "subjects", i, "namespace")
			}
		}
	}
	if p.change != nil {
		p.change(o)
	}
}

// namespace is a namespace's hole, or itself if it is another's.
func (p part) namespace(n string) string {
	if p.engine != "" && n == p.engine {
		return hole(strings.TrimSuffix(p.values, ".node") + ".namespace")
	}
	if h, ok := namespaces[n]; ok {
		return h
	}
	panic("the namespace " + n + " is not known")
}

// workload makes the holes of a DaemonSet or a Deployment of one container.
func (p part) workload(o object) {
	pod := at(o, "spec", "template", "spec").(object)
	container := at(pod, "containers", 0).(object)
	container["image"] = hole(fmt.Sprintf(`include "plumbline.image" (dict "root" $ "name" %q)`, p.image))
	container["imagePullPolicy"] = hole("$.Values.image.pullPolicy")
	container["resources"] = block(p.values + ".resources")
	pod[lines(`include "plumbline.pullSecrets" $`)] = ""
	metadata := at(o, "spec", "template", "metadata").(object)
	metadata["labels"].(object)["app.kubernetes.io/part-of"] = "plumbline"
	port := at(container, "ports", 0, "containerPort")
	metadata["annotations"] = object{lines(fmt.Sprintf(`include "plumbline.scrapeAnnotations" (dict "root" $ "port" %v)`, port)): ""}
	if o["kind"] == "DaemonSet" {
		pod["nodeSelector"] = block(p.values + ".nodeSelector")
		set(pod, block("$.Values.nodeAffinity"), "affinity", "nodeAffinity")
		pod["tolerations"] = block(p.values + ".tolerations")
		delete(pod, "priorityClassName")
		pod[lines(`include "plumbline.priorityClass" $`)] = ""
	} else {
		place(pod)
	}
	args, _ := container["args"].([]any)
	for i, a := range args {
		if other := arguments[a.(string)]; other != "" {
			args[i] = other
		}
	}
	for _, e := range container["env"].([]any) {
		// The manifest's own limit is for releases that an older chart made, whose values have none (--reuse-values).
		if v := e.(object); v["name"] == "GOMEMLIMIT" {
			v["value"] = hole(fmt.Sprintf("default %q %s.memoryLimit", v["value"], p.values))
		}
	}
}

// place has the values say where a pod that is there once for the cluster is started.
func place(pod object) {
	delete(pod, "nodeSelector")
	pod[lines(`include "plumbline.placement" $`)] = ""
}

// apiServer puts the API server's ports into the rule of a network policy that lets out to it.
func apiServer(o object) {
	for _, rule := range at(o, "spec", "egress").([]any) {
		ports, _ := at(rule, "ports").([]any) // none: every port
		for _, port := range ports {
			if at(port, "port") == float64(6443) {
				rule.(object)["ports"] = block(`include "plumbline.apiServerPorts" $ | fromYamlArray`)
				break
			}
		}
	}
}

// agent takes more arguments and variables, and its pods are made anew when the control classes change.
func agent(o object) {
	const controls = `join "," $.Values.control.storageClasses`
	switch o["kind"] {
	case "DaemonSet":
		args := at(o, "spec", "template", "spec", "containers", 0, "args").([]any)
		set(o, append(args, items("$.Values.agent.extraArgs")), "spec", "template", "spec", "containers", 0, "args")
		env := at(o, "spec", "template", "spec", "containers", 0, "env").([]any)
		set(o, append(env, items("$.Values.agent.extraEnv")), "spec", "template", "spec", "containers", 0, "env")
		at(o, "spec", "template", "metadata", "annotations").(object)["checksum/controls"] = hole(controls + " | sha256sum")
	case "ConfigMap":
		set(o, hole(controls+" | quote"), "data", "classes")
	case "NetworkPolicy":
		switch at(o, "metadata", "name") {
		case "plumbline-agent":
			moreEgress(o, "$.Values.agent.extraEgress")
		case "plumbline-agent-otlp":
			set(o, hole(`include "plumbline.urlPort" $.Values.agent.trace.otlpEndpoint`), "spec", "egress", 0, "ports", 0, "port")
		}
	}
}

// dataPaths mounts each of Longhorn's data paths where the exporter looks for it, and the certificates for its instance managers.
func dataPaths(o object) {
	switch o["kind"] {
	case "DaemonSet":
		spec := at(o, "spec", "template", "spec").(object)
		container := at(spec, "containers", 0).(object)
		container["args"] = append(container["args"].([]any), itemsIf("$.Values.longhorn.node.grpcTLSSecret", []any{"--grpc.tls-dir=/etc/longhorn-grpc-tls"}))
		container["volumeMounts"] = block(`include "plumbline.longhornMounts" $ | fromYamlArray`)
		spec["volumes"] = block(`include "plumbline.longhornVolumes" $ | fromYamlArray`)
	case "NetworkPolicy":
		set(o, hole("$.Values.longhorn.namespace"), "spec", "egress", 1, "to", 0, "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name")
	}
}

// monitorHistograms says which kind of histograms is to be stored.
func monitorHistograms(spec object) {
	if spec["scrapeNativeHistograms"] == true {
		spec["scrapeNativeHistograms"] = hole(`ne $.Values.prometheus.histograms "classic"`)
	}
	if spec["convertClassicHistogramsToNHCB"] == true {
		spec["convertClassicHistogramsToNHCB"] = hole(`eq $.Values.prometheus.histograms "native"`)
	}
}

// openebsAddresses puts OpenEBS' namespace where its programs are looked for.
func openebsAddresses(o object) {
	namespace := hole("$.Values.openebs.namespace")
	switch o["kind"] {
	case "PodMonitor":
		if at(o, "spec", "namespaceSelector") != nil {
			set(o, []any{namespace}, "spec", "namespaceSelector", "matchNames")
		}
	case "NetworkPolicy":
		switch at(o, "metadata", "name") {
		case "openebs-exporter":
			moreEgress(o, "$.Values.openebs.extraEgress")
		case "openebs-exporter-mayastor":
			set(o, block(`include "plumbline.mayastorPeers" $ | fromYamlArray`), "spec", "egress", 0, "to")
			set(o, block(`include "plumbline.mayastorPorts" $ | fromYamlArray`), "spec", "egress", 0, "ports")
		}
	}
}

// moreEgress adds the rules of a value to those by which a network policy lets its pods out.
func moreEgress(o object, value string) {
	set(o, append(at(o, "spec", "egress").([]any), items(value)), "spec", "egress")
}

// arguments are those of programs and components in whose place others stand.
var arguments = map[string]string{
	"--mayastor.url=http://openebs-api-rest.openebs:8081": "--mayastor.url=" + hole(`include "plumbline.mayastorURL" $`),
	"--trace.sample=10": "--trace.sample=" + hole("$.Values.agent.trace.sample"),
	"--trace.otlp-endpoint=http://tempo.tracing:4318/v1/traces": "--trace.otlp-endpoint=" + hole("$.Values.agent.trace.otlpEndpoint"),
	"--kubernetes.namespace=longhorn-system":                    "--kubernetes.namespace=" + hole("$.Values.longhorn.namespace"),
}

// longhornManager is Longhorn's own service.
func longhornManager(o object) {
	set(o, []any{hole("$.Values.longhorn.namespace")}, "spec", "namespaceSelector", "matchNames")
}
