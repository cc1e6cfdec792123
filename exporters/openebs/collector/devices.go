package collector

import (
	"context"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

const (
	// deviceEvery is every how many polls a node's block devices are listed again.
	deviceEvery = 30
	// deviceTimeout bounds the list of one node, for which the API queries the node itself.
	deviceTimeout = 2 * time.Second
	// maxDeviceCalls bounds the concurrent list requests.
	maxDeviceCalls = 16
)

// devices knows the kernel's names of the nodes' block devices. Each node is queried separately and in the background:
// one that hangs delays neither another nor a poll.
type devices struct {
	log     *slog.Logger
	client  *restClient
	timeout time.Duration
	failed  func(error) // counts a failed call
	slots   chan struct{}

	mu    sync.Mutex
	nodes map[string]*nodeDevices
}

// nodeDevices are those of one node; devices.mu is held.
type nodeDevices struct {
	names    map[string]string // by path; nil before the first answer
	polls    int               // since the answer
	underWay bool
	polled   bool // at least once, with any result
	failing  bool
}

func newDevices(o Options, client *restClient, failed func(error)) *devices {
	return &devices{log: o.Log, client: client, timeout: min(deviceTimeout, o.Timeout), failed: failed,
		slots: make(chan struct{}, maxDeviceCalls), nodes: map[string]*nodeDevices{}}
}

// refresh starts to query the nodes that are online and due, and returns at once. Nodes that are gone are forgotten.
func (d *devices) refresh(ctx context.Context, nodes []restNode) {
	d.mu.Lock()
	defer d.mu.Unlock()
	there := map[string]bool{}
	for _, n := range nodes {
		there[n.ID] = true
		if n.State == nil || n.State.Status != "Online" {
			continue
		}
		known := d.nodes[n.ID]
		if known == nil {
			known = &nodeDevices{}
			d.nodes[n.ID] = known
		}
		known.polls++
		if !known.underWay && (known.names == nil || known.polls >= deviceEvery) {
			known.underWay = true
			go d.fetch(ctx, n.ID, known)
		}
	}
	for name := range d.nodes {
		if !there[name] {
			delete(d.nodes, name)
		}
	}
}

// fetch lists a node's block devices. If that fails, the ones known before stay.
func (d *devices) fetch(parent context.Context, node string, known *nodeDevices) {
	d.slots <- struct{}{}
	defer func() { <-d.slots }()
	ctx, cancel := context.WithTimeout(parent, d.timeout)
	defer cancel()
	var list []restDevice
	err := exporterkit.Recovered(func() error { return listDevices(ctx, d.client, node, &list) })
	if parent.Err() != nil {
		return
	}
	if err != nil {
		d.failed(err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	known.underWay, known.polled = false, true
	if err == nil {
		known.names, known.polls = kernelNames(list), 0
	} else if !known.failing {
		d.log.Warn("Mayastor does not list a node's block devices", "node", label.Value(node), "err", label.Text(err.Error(), maxLogged))
	}
	known.failing = err != nil
}

func listDevices(ctx context.Context, c *restClient, node string, into *[]restDevice) error {
	return list(ctx, c, "/nodes/"+url.PathEscape(node)+"/block_devices", url.Values{"all": {"true"}}, maxListed, into)
}

// kernelNames are the names of the disks by each path of a device; a partition counts as its disk.
func kernelNames(list []restDevice) map[string]string {
	names := map[string]string{}
	for _, d := range list {
		disk := d.Name
		if d.Partition != nil && d.Partition.Parent != "" {
			disk = d.Partition.Parent
		}
		for _, p := range append(d.Links, d.Name) {
			names[p] = strings.TrimPrefix(disk, "/dev/") // which may have a / itself (cciss/c0d0)
		}
	}
	return names
}

// name returns the kernel's name of a node's device, empty if it is not known. It is pending until the node was queried
// once.
func (d *devices) name(node, path string) (name string, pending bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.nodes[node]
	if known == nil {
		return "", false
	}
	return known.names[path], !known.polled
}
