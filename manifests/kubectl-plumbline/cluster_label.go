package main

import (
	"context"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules/why"
)

// among returns the API to query: all that Prometheus has, or the series of the cluster that the user named.
func (c *cluster) among(p promv1.API) why.API {
	if c.o.clusterNamed {
		return why.Within(p, c.o.cluster)
	}
	return p
}

// oneCluster returns the Prometheus, and what to query of it once that is known to be of one cluster: a central store
// has those of many.
func (c *cluster) oneCluster(ctx context.Context) (p promv1.API, api why.API, err error) {
	if p, err = c.findPrometheus(ctx); err != nil {
		return nil, nil, err
	}
	api = c.among(p)
	return p, api, why.OneCluster(ctx, api, c.now())
}

// ours reports whether an alert is of the queried cluster.
func (c *cluster) ours(labels model.LabelSet) bool {
	return !c.o.clusterNamed || string(labels["cluster"]) == c.o.cluster
}
