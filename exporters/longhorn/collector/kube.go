package collector

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// Cluster knows Longhorn's objects on a Kubernetes cluster.
type Cluster struct {
	*kube.Objects
	node string
}

// NewCluster returns a Cluster over the objects in namespace. If node is not empty only
// engines attached to it and replicas on it are of interest.
func NewCluster(config *rest.Config, namespace, node string, log *slog.Logger) (*Cluster, error) {
	objects, err := kube.New(config, log)
	if err != nil {
		return nil, err
	}
	resource := func(name string) schema.GroupVersionResource {
		return schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: name}
	}
	kube.Follow[volumeObject](objects, resource("volumes"), namespace)
	kube.Follow[engineObject](objects, resource("engines"), namespace)
	kube.Follow[replicaObject](objects, resource("replicas"), namespace)
	kube.Follow[nodeObject](objects, resource("nodes"), namespace)
	kube.Follow[managerObject](objects, resource("instancemanagers"), namespace)
	return &Cluster{objects, node}, nil
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

// Feed tells fleet which engines run, now and after every change, until ctx ends. Engines and where they run it must know;
// without the replicas' objects, if they cannot be listed, replicas are named as the engines name them.
func (c *Cluster) Feed(ctx context.Context, fleet *Fleet) {
	if !c.Synced(ctx, "engines", "instancemanagers") || !c.Settled(ctx, "replicas") {
		return
	}
	for {
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
