package collector

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// Cluster knows Longhorn's objects on a Kubernetes cluster.
type Cluster struct {
	*kube.Objects
	namespace, node string
}

// NewCluster returns a Cluster over the objects in namespace. If node is not empty only
// engines attached to it and replicas on it are of interest.
func NewCluster(config *rest.Config, namespace, node string, log *slog.Logger) (*Cluster, error) {
	objects, err := kube.New(config, log)
	if err != nil {
		return nil, err
	}
	c := &Cluster{Objects: objects, namespace: namespace, node: node}
	c.followAll("", "")
	return c, nil
}

// followAll follows all kinds; of engines and replicas, and of instance managers, those that labels select.
func (c *Cluster) followAll(instances, managers string) {
	kube.Follow[volumeObject](c.Objects, c.kind("volumes", ""), nil)
	kube.Follow[engineObject](c.Objects, c.kind("engines", instances), nil)
	kube.Follow[replicaObject](c.Objects, c.kind("replicas", instances), nil)
	kube.Follow[nodeObject](c.Objects, c.kind("nodes", ""), nil)
	kube.Follow[managerObject](c.Objects, c.kind("instancemanagers", managers), nil)
}

func (c *Cluster) kind(resource, labels string) kube.Kind {
	return kube.Kind{Group: "longhorn.io", Versions: []string{"v1beta2", "v1beta1"}, Resource: resource, Namespace: c.namespace, Labels: labels}
}

// Labels that Longhorn itself uses to find its objects (longhorn-manager types/types.go).
const (
	nodeLabel        = "longhornnode"     // of engines and replicas
	managerNodeLabel = "longhorn.io/node" // of instance managers
	volumeLabel      = "longhornvolume"   // of replicas
)

// elsewhere are the replicas of the volumes that are attached to this node, wherever they are; not followed if all
// replicas are.
const elsewhere = "attachedreplicas"

// Serve makes the cluster follow no more than the collectors that are on read, before Run. Of one node's engines and
// replicas the API server selects the objects: a cluster has thousands of times as many.
func (c *Cluster) Serve(on map[string]bool) {
	polled, whole := on["engine"] || on["replica"], on["volume"] || on["node"]
	if c.node != "" && !whole && len(validation.IsValidLabelValue(c.node)) == 0 {
		c.followAll(nodeLabel+"="+c.node, managerNodeLabel+"="+c.node)
		of := c.kind("replicas", "")
		of.Name, of.Idle = elsewhere, true
		kube.Follow[replicaObject](c.Objects, of, nil)
	}
	for resource, read := range map[string]bool{
		"volumes": on["volume"], "engines": polled, "replicas": polled || on["volume"], "nodes": whole, "instancemanagers": polled || on["node"],
	} {
		if !read {
			c.Forget(resource)
		}
	}
}

// maxNamed bounds the volumes that a selection names; of more all replicas are followed.
const maxNamed = 1000

// selectReplicas selects the replicas of the volumes whose engines are here.
func (c *Cluster) selectReplicas() {
	var volumes []string
	for _, e := range all[*engineObject](c, "engines") {
		if e.Spec.NodeID == c.node && len(validation.IsValidLabelValue(e.Spec.VolumeName)) == 0 {
			volumes = append(volumes, e.Spec.VolumeName)
		}
	}
	slices.Sort(volumes)
	volumes = slices.Compact(volumes)
	switch n := len(volumes); {
	case n == 0:
		c.Select(elsewhere, "")
	case n > maxNamed:
		c.Select(elsewhere, volumeLabel)
	default:
		c.Select(elsewhere, volumeLabel+" in ("+strings.Join(volumes, ",")+")")
	}
}

// all returns the objects of a kind by name.
func all[P kube.Object](c *Cluster, resource string) map[string]P {
	return kube.All[P](c.Objects, resource)
}

// outcome is the error of a collector that sent n things known from the kinds named, beside its own errs.
func (c *Cluster) outcome(n int, kinds []string, errs ...error) error {
	if c != nil {
		errs = append(errs, c.Err(kinds...))
	}
	return exporterkit.Outcome(n, errs...)
}

// settle is how long the list of targets waits for more changes after one.
const settle = 500 * time.Millisecond

// Feed sends fleet the engines that run, now and after every change, until ctx ends. It needs the engines and where
// they run. Without the replicas' objects, if they cannot be listed, replicas have the names that the engines give
// them.
func (c *Cluster) Feed(ctx context.Context, fleet *Fleet) {
	if !c.Synced(ctx, "engines", "instancemanagers") || !c.Settled(ctx, "replicas") {
		return
	}
	for {
		c.selectReplicas()
		if !c.Settled(ctx, elsewhere) {
			return
		}
		fleet.Set(ctx, c.targets())
		select {
		case <-ctx.Done():
			return
		case <-c.Changed():
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
	}
}

// Check reports, for --check, whether each kind can be listed.
func (c *Cluster) Check(ctx context.Context) []exporterkit.CheckResult {
	var results []exporterkit.CheckResult
	for _, r := range c.Objects.Check(ctx) {
		results = append(results, exporterkit.CheckResult{Part: "Longhorn's " + r.Resource, Err: r.Err, Note: r.Note})
	}
	return results
}
