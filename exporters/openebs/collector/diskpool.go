package collector

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// diskPoolState comes from the objects diskpools.openebs.io (v1beta3 or v1beta2): the operator's view of a pool, which
// the REST API does not return.
var diskPoolState = prometheus.NewDesc("plumbline_openebs_diskpool_state",
	"How far the operator got with a DiskPool: 1 for the state it is in (Creating, Created, Terminating), else 0.", []string{"node", "pool", "state"}, nil)

var diskPoolStates = []string{"Creating", "Created", "Terminating"}

type diskPoolObject struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		Node string `json:"node"`
	} `json:"spec"`
	Status struct {
		State string `json:"cr_state"`
	} `json:"status"`
}

func (o *diskPoolObject) UnknownValue() string {
	return unknownValue("status.cr_state", o.Status.State, diskPoolStates)
}

// unknownValue returns a text if a field has an unknown value; an empty value is not there yet.
func unknownValue(field, value string, known []string) string {
	if value == "" || slices.Contains(known, value) {
		return ""
	}
	return field + ": " + value
}

type diskPool struct{ o Options }

// NewDiskPool makes the collector of DiskPool objects.
func NewDiskPool(o Options) Collector {
	// v1beta3 has more in its spec than v1beta2 (mayastor-control-plane, k8s/operators/src/pool/diskpool/crd); what is
	// read is the same.
	kube.Follow[diskPoolObject](o.Objects, kube.Kind{Group: "openebs.io", Versions: []string{"v1beta3", "v1beta2"}, Resource: "diskpools"}, nil)
	return &diskPool{o}
}

func (c *diskPool) Start(context.Context) error { return nil }

func (c *diskPool) Update(ch chan<- prometheus.Metric) error {
	objects := kube.All[*diskPoolObject](c.o.Objects, "diskpools")
	for name, p := range objects {
		states(ch, diskPoolState, p.Status.State, diskPoolStates, p.Spec.Node, name)
	}
	return exporterkit.Outcome(len(objects), c.o.Objects.Err("diskpools"))
}

func (c *diskPool) Check(context.Context) []exporterkit.CheckResult { return nil }
