package why

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Within restricts all queries to one cluster: to the series whose label cluster has this value, or if it is
// empty to those without the label. A store of several clusters may have the same names in each.
func Within(api API, cluster string) API { return within{api, cluster} }

type within struct {
	API
	cluster string
}

// Only returns the cluster that Within restricts to; ok reports whether it does.
func Only(api API) (cluster string, ok bool) {
	w, ok := api.(within)
	return w.cluster, ok
}

// OneCluster returns an error if answers would be of several clusters, or of one that is not there. It lists those that
// are.
func OneCluster(ctx context.Context, api API, at time.Time) error {
	a := newQuerier(ctx, api, at, 0)
	problem := a.cluster()
	if *a.err != nil {
		return *a.err
	}
	if problem != "" {
		return errors.New(problem + "; choose one with --cluster=NAME")
	}
	return nil
}

// cluster returns why the queries are not of one cluster; "" if they are, or if there is nothing yet.
func (a *querier) cluster() string {
	var there []string
	for _, s := range a.vector("clusters") {
		// Values that differ may be the same once they are cleaned: they are counted as they come.
		there = append(there, string(s.Metric["cluster"]))
	}
	slices.Sort(there)
	name, named := Only(a.api)
	switch {
	case len(there) == 0:
	case !named && len(there) > 1:
		return fmt.Sprintf("Prometheus has series of %d clusters, by their label cluster: %s", len(there), quoted(there))
	case named && !slices.Contains(there, Clean(name)):
		return fmt.Sprintf("Prometheus has no series of Plumbline with the label cluster=%q, but of: %s", Clean(name), quoted(there))
	}
	return ""
}

// quoted lists values of a label, the first of many; "" is that of series without the label.
func quoted(values []string) string {
	const most = 20
	var all []string
	for _, v := range values[:min(len(values), most)] {
		all = append(all, strconv.Quote(v))
	}
	text := strings.Join(all, ", ")
	if len(values) > most {
		text += fmt.Sprintf(" and %d more", len(values)-most)
	}
	if slices.Contains(values, "") {
		text += ` ("" is of series without it)`
	}
	return text
}

// among is the first link: that the queries are of one cluster. It has no name if nothing is wrong with it.
func (c *chain) among() Link {
	problem := c.cluster()
	if problem == "" {
		return Link{}
	}
	return Link{Name: "cluster", Missing: problem + ".", Next: []string{
		"Choose one: kubectl plumbline verify --cluster=NAME. In the chart it is the value prometheus.cluster.",
	}}
}
