package main

import (
	"context"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules/why"
)

// among is what is asked: all that Prometheus has, or the series of the cluster that the user named.
func (c *cluster) among(p promv1.API) why.API {
	if c.o.clusterNamed {
		return why.Within(p, c.o.cluster)
	}
	return p
}

// oneCluster is what is asked, once it is known to be of one cluster: a central store has those of many.
func (c *cluster) oneCluster(ctx context.Context, p promv1.API) (why.API, error) {
	api := c.among(p)
	return api, why.OneCluster(ctx, api, c.now())
}

// ours says whether an alert is of the cluster that is asked about.
func (c *cluster) ours(labels model.LabelSet) bool {
	return !c.o.clusterNamed || string(labels["cluster"]) == c.o.cluster
}
