package collector

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// nodeIDLabel is of nodes that were given a name of their own for OpenEBS, so that another machine can take their
// place; it is the owner of their volumes.
const nodeIDLabel = "openebs.io/nodeid"

// nodeLabels are the labels by which OpenEBS distinguishes nodes. Their values are the node's name by default.
var nodeLabels = []string{"kubernetes.io/hostname", "openebs.io/nodename", nodeIDLabel}

// nodeObject is what is read of a node.
type nodeObject struct {
	nodeMeta `json:"metadata"`
	Status   struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

type nodeMeta struct {
	kube.Meta
	Labels labelList `json:"labels"`
}

// nodeLabel is a label of a node, and its value.
type nodeLabel struct{ key, value string }

// labelList are an object's labels, of which all may matter: PersistentVolumes name the ones that an administrator chose.
type labelList []nodeLabel

// maxNodeLabels bounds the labels that are kept of a node; which ones are left out of more is chance, but for nodeLabels.
const maxNodeLabels = 128

// UnmarshalJSON implements json.Unmarshaler.
func (l *labelList) UnmarshalJSON(text []byte) error {
	var labels map[string]string
	if err := json.Unmarshal(text, &labels); err != nil {
		return err
	}
	*l = nil
	for _, key := range append(slices.Clone(nodeLabels), slices.Collect(maps.Keys(labels))...) {
		if value, ok := labels[key]; ok && len(*l) < maxNodeLabels {
			*l = append(*l, nodeLabel{key, value})
			delete(labels, key)
		}
	}
	return nil
}

// sharedLabels returns the texts of labels, for kube's sharing of texts.
func sharedLabels(l []nodeLabel) (texts []*string) {
	for i := range l {
		texts = append(texts, &l[i].key, &l[i].value)
	}
	return texts
}

// Shared implements kube's sharing of texts.
func (o *nodeObject) Shared() []*string { return sharedLabels(o.Labels) }

// label is the value of a label, or "".
func (o *nodeObject) label(name string) string {
	for _, l := range o.Labels {
		if l.key == name {
			return l.value
		}
	}
	return ""
}

// ready reports whether the node's kubelet answers.
func (o *nodeObject) ready() bool {
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True"
		}
	}
	return true // no condition denies it
}

// UnknownValue implements kube.Object.
func (*nodeObject) UnknownValue() string { return "" }

// followNodes makes nodes known where they may be listed.
func followNodes(o *kube.Objects) {
	kube.Follow[nodeObject](o, kube.Kind{Versions: []string{"v1"}, Resource: "nodes", Dispensable: true}, nil)
}

// away returns whether a node is gone or its kubelet does not answer, by the node's name or by the value of one of
// nodeLabels: what objects have of the node is as it was then. Where nodes may not be listed none is away.
func away(o *kube.Objects) func(node string) bool {
	ready := map[string]bool{}
	for name, n := range kube.All[*nodeObject](o, "nodes") {
		ready[name] = n.ready()
		for _, label := range nodeLabels {
			if value := n.label(label); value != "" {
				ready[value] = ready[value] || n.ready()
			}
		}
	}
	return func(node string) bool { return len(ready) > 0 && node != "" && !ready[node] }
}

// nodeNames returns a function from labels of one node's to the node's name, for those labels that volumes name and for
// nodeLabels. A value of one of nodeLabels that no node has, or more than one, stays as it is; of other labels it names none.
func nodeNames(o *kube.Objects, volumes map[string]*placed) func(labels ...nodeLabel) string {
	named := slices.Clone(nodeLabels)
	for _, v := range volumes {
		for _, l := range v.on {
			if !slices.Contains(named, l.key) {
				named = append(named, l.key)
			}
		}
	}
	names := map[nodeLabel]string{}
	for name, n := range kube.All[*nodeObject](o, "nodes") {
		for _, label := range named {
			key := nodeLabel{label, n.label(label)}
			if _, twice := names[key]; twice || key.value == "" {
				names[key] = ""
			} else {
				names[key] = name
			}
		}
	}
	return func(labels ...nodeLabel) string {
		for _, l := range labels {
			if name := names[l]; name != "" {
				return name
			}
		}
		for _, l := range labels {
			if slices.Contains(nodeLabels, l.key) {
				return l.value
			}
		}
		return ""
	}
}
