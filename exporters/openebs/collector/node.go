package collector

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// nodeIDLabel is of nodes that were given a name of their own for OpenEBS, so that another machine can take their place; it is the owner of their volumes.
const nodeIDLabel = "openebs.io/nodeid"

// nodeLabels are those by which OpenEBS tells nodes apart. Their values are the node's name only as long as nobody gives others.
var nodeLabels = []string{"kubernetes.io/hostname", "openebs.io/nodename", nodeIDLabel}

// nodeObject is what is read of a node: its labels.
type nodeObject struct {
	metav1.ObjectMeta `json:"metadata"`
}

// Odd implements kube.Object.
func (*nodeObject) Odd() string { return "" }

// followNodes makes nodes known where they may be listed.
func followNodes(o *kube.Objects) {
	kube.FollowIfAllowed[nodeObject](o, schema.GroupVersionResource{Version: "v1", Resource: "nodes"}, func(u *unstructured.Unstructured) {
		for _, part := range []string{"spec", "status"} {
			delete(u.Object, part)
		}
		u.SetManagedFields(nil)
		u.SetAnnotations(nil)
	})
}

// nodeNames returns a function from a label of one node's, and its value, to the node's name. A value that no node has, or more than one, stays as it is.
func nodeNames(o *kube.Objects) func(label, value string) string {
	names := map[[2]string]string{}
	for name, n := range kube.All[*nodeObject](o, "nodes") {
		for _, label := range nodeLabels {
			key := [2]string{label, n.Labels[label]}
			if _, twice := names[key]; twice || key[1] == "" {
				names[key] = ""
			} else {
				names[key] = name
			}
		}
	}
	return func(label, value string) string {
		if name := names[[2]string{label, value}]; name != "" {
			return name
		}
		return value
	}
}
