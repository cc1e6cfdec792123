package chart

import (
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// podPaths are where the kinds of the chart that start pods have these.
var podPaths = map[string][]string{
	"Pod":        {"spec"},
	"Deployment": {"spec", "template", "spec"},
	"DaemonSet":  {"spec", "template", "spec"},
	"CronJob":    {"spec", "jobTemplate", "spec", "template", "spec"},
}

// pods are the chart's with these values, by KIND/NAME of what starts each.
func pods(t *testing.T, values ...string) map[string]core.PodSpec {
	t.Helper()
	objects, text, err := template(t, values...)
	if err != nil {
		t.Fatal(text)
	}
	all := map[string]core.PodSpec{}
	for _, o := range objects {
		path, ok := podPaths[o.GetKind()]
		if !ok {
			continue
		}
		found, _, err := unstructured.NestedMap(o.Object, path...)
		if err != nil {
			t.Fatal(err)
		}
		var pod core.PodSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found, &pod); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		all[o.GetKind()+"/"+o.GetName()] = pod
	}
	return all
}
