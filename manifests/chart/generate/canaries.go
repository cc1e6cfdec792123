package main

import (
	"maps"
	"strings"
)

// canaryNamespace is where one of the list of canaries is, with its Secret.
var canaryNamespace = hole("default $.Release.Namespace .namespace")

// releaseLabel has the release's name on what a monitor of that release alone selects, wherever it is.
const releaseLabel = "plumbline.io/release"

// canary is one of the list: its database, and where its Secret is.
func canary(o object) {
	instance := hole(`printf "canary-%s" .name`)
	set(o, instance, "metadata", "name")
	set(o, canaryNamespace, "metadata", "namespace")
	for _, labels := range [][]any{{"metadata", "labels"}, {"spec", "template", "metadata", "labels"}, {"spec", "selector", "matchLabels"}} {
		m := at(o, labels...).(object)
		delete(m, "plumbline")
		delete(m, "canary")
		m[nameLabel] = "plumbline-canary"
		m["app.kubernetes.io/instance"] = instance
	}
	// Not among what the Deployment selects by, which cannot be changed.
	set(o, hole("$.Release.Name | quote"), "spec", "template", "metadata", "labels", releaseLabel)
	database(o, nil, "spec", "template", "spec", "containers", 0)
}

// canariesMonitor finds the release's canaries in their namespaces, and in no other: it takes what a pod says of itself.
func canariesMonitor(o object) {
	o["metadata"].(object)["namespace"] = hole(releaseNamespace)
	set(o, "plumbline-canary", "metadata", "name")
	delete(at(o, "metadata", "labels").(object), "plumbline")
	set(o, object{"matchNames": block(`include "plumbline.canaryNamespaces" $ | fromYamlArray`)}, "spec", "namespaceSelector")
	set(o, object{nameLabel: "plumbline-canary", releaseLabel: hole("$.Release.Name | quote")}, "spec", "selector", "matchLabels")
}

// database gives a container of loadgen the database of one of the list of canaries, and other arguments their values.
func database(o object, others map[string]string, container ...any) {
	values := map[string]string{"--server": ".server", "--storageclass": ".storageclass", "--rate": "default 10 .rate"}
	maps.Copy(values, others)
	args := at(o, append(container, "args")...).([]any)
	for i, a := range args {
		flag, _, _ := strings.Cut(a.(string), "=")
		if value := values[flag]; value != "" {
			args[i] = flag + "=" + hole(value)
			delete(values, flag)
		}
	}
	if len(values) > 0 {
		panic(name(o) + " lacks arguments that have values")
	}
	set(o, append(args, "--engine="+hole(`include "plumbline.engine" .`)), append(container, "args")...)
	for _, e := range at(o, append(container, "env")...).([]any) {
		if e.(object)["name"] == "LOADGEN_DSN" {
			secret := at(e, "valueFrom", "secretKeyRef").(object)
			secret["name"], secret["key"] = hole(".dsnSecret.name"), hole(`default "uri" .dsnSecret.key`)
			return
		}
	}
	panic(name(o) + " has no variable LOADGEN_DSN")
}

// baseline is what pins one of the list of canaries: each has an account of its own, which may write that canary's pin alone.
func baseline(o object) {
	job, pin := hole(`printf "baseline-%s" .name`), hole(`printf "plumbline-baseline-%s" .name`)
	metadata := o["metadata"].(object)
	metadata["namespace"] = canaryNamespace
	labels := metadata["labels"].(object)
	labels[nameLabel], labels["app.kubernetes.io/instance"] = "plumbline-baseline", job
	metadata["name"] = job
	switch o["kind"] {
	case "PrometheusRule":
		metadata["name"] = pin
		labels[lines(`include "plumbline.monitorLabels" $`)] = ""
	case "Role":
		set(o, []any{pin}, "rules", 0, "resourceNames")
	case "RoleBinding":
		set(o, job, "roleRef", "name")
		set(o, object{"kind": "ServiceAccount", "name": job, "namespace": canaryNamespace}, "subjects", 0)
	case "CronJob":
		set(o, hole("$.Values.baseline.suspend"), "spec", "suspend")
		set(o, hole("$.Values.baseline.schedule | quote"), "spec", "schedule")
		template := []any{"spec", "jobTemplate", "spec", "template"}
		set(o, object{
			"labels":      object{nameLabel: "plumbline-baseline", "app.kubernetes.io/instance": job, "app.kubernetes.io/part-of": "plumbline"},
			"annotations": block("$.Values.podAnnotations"),
		}, append(template, "metadata")...)
		pod := at(o, append(template, "spec")...).(object)
		pod["serviceAccountName"] = job
		pod[lines(`include "plumbline.pullSecrets" $`)] = ""
		place(pod)
		container := at(pod, "containers", 0).(object)
		container["image"] = hole(`include "plumbline.image" (dict "root" $ "name" "loadgen")`)
		container["imagePullPolicy"] = hole("$.Values.image.pullPolicy")
		container["resources"] = block("$.Values.baseline.resources")
		database(o, map[string]string{"--kubernetes.prometheusrule": `printf "plumbline-baseline-%s" .name`, "--duration": "$.Values.baseline.duration",
			"--refuse-slower": "$.Values.baseline.refuseSlower"}, append(template, "spec", "containers", 0)...)
	}
}
