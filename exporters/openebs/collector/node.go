package collector

import "github.com/plumbline/plumbline/exporters/exporterkit/kube"

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
	Labels struct { // nodeLabels
		Host string `json:"kubernetes.io/hostname"`
		Name string `json:"openebs.io/nodename"`
		ID   string `json:"openebs.io/nodeid"`
	} `json:"labels"`
}

// label is the value of one of nodeLabels.
func (o *nodeObject) label(name string) string {
	return map[string]string{nodeLabels[0]: o.Labels.Host, nodeLabels[1]: o.Labels.Name, nodeLabels[2]: o.Labels.ID}[name]
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

// Odd implements kube.Object.
func (*nodeObject) Odd() string { return "" }

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

// nodeNames returns a function from a label of one node's, and its value, to the node's name. A value that no node has,
// or more than one, stays as it is.
func nodeNames(o *kube.Objects) func(label, value string) string {
	names := map[[2]string]string{}
	for name, n := range kube.All[*nodeObject](o, "nodes") {
		for _, label := range nodeLabels {
			key := [2]string{label, n.label(label)}
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
