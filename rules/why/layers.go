package why

import (
	"maps"
	"math"
	"slices"

	"github.com/plumbline/plumbline/rules/layers"
)

// writeLayers splits a write as rules/decomposition.rules.yaml does, over the finding's window. But what
// a replica's process does not get to is the replica's and not the network's.
func writeLayers(w Write, replicas []Replica) []Layer {
	if w.Count < 1 {
		return nil
	}
	slowest := slowestOf(replicas)
	var parts []Layer
	add := func(name string, seconds float64) {
		if Known(seconds) {
			parts = append(parts, Layer{name, max(seconds, 0)})
		}
	}
	add(layers.Queue, w.Queue)
	below := first(w.Engine, slowest.Time()) // what the device waits for, if that is seen
	path := math.NaN()
	if Known(w.Engine) && w.Path > w.Engine { // means of other requests may differ
		path, below = w.Path-w.Engine, w.Path
	}
	if Known(below) {
		add(layers.Device, w.Device-below)
	} else {
		add(layers.Device, w.Device)
	}
	add(layers.Path, path)
	if Known(w.Engine) {
		add(layers.Engine, w.Engine-first(slowest.Time(), 0))
	}
	if Known(slowest.Time()) {
		network, inside := slowest.RoundTrip-slowest.Service, first(slowest.Service, slowest.RoundTrip)
		if slowest.backlogged {
			inside, network = inside+network, 0
		}
		add(layers.Network, network)
		// Others use the disk, too: never more of it than the replica itself took.
		disk := math.Min(slowest.Disk, slowest.Service)
		add(layers.Replica, inside-first(disk, 0))
		add(layers.Disk, disk)
	}
	total := first(w.Total, w.Engine)
	sum := 0.0
	for _, l := range parts {
		sum += l.Seconds
	}
	if len(parts) == 0 {
		add(layers.Device, total) // node_exporter alone: all there is
	} else if Known(total) && total-sum > 0.01*total {
		add(layers.Rest, total-sum)
	}
	return parts
}

// slowestOf returns the replica whose writes take longest; its times are NaN if there is none.
func slowestOf(replicas []Replica) Replica {
	slowest := Replica{RoundTrip: math.NaN(), Service: math.NaN(), Disk: math.NaN(), Count: math.NaN()}
	for _, r := range replicas {
		if Known(r.Time()) && !(r.Time() <= slowest.Time()) {
			slowest = r
		}
	}
	return slowest
}

// statementLayers are the phases, with sync split by what the device spent its time on.
func statementLayers(s Statement, w Write) []Layer {
	var parts []Layer
	for _, p := range s.Phases {
		if p.Name != layers.Sync {
			parts = append(parts, p)
		}
	}
	sync := seconds(s.Phases, layers.Sync)
	shares := syncShares(w)
	if !Known(sync) {
		return parts
	}
	if len(shares) == 0 {
		return append(parts, Layer{layers.Sync, sync})
	}
	for _, l := range shares {
		parts = append(parts, Layer{l.Name, l.Seconds * sync})
	}
	return parts
}

// syncShares are a sync's layers, as shares of what the volume's device spends its time on: a sync waits for the writes
// that it sets off and for the flush after them.
func syncShares(w Write) (parts []Layer) {
	writing, flushing := first(w.Count*w.Total, 0), first(w.FlushCount*w.Flush, 0)
	if writing+flushing <= 0 || len(w.Layers) == 0 {
		return nil
	}
	whole := sum(w.Layers)
	split := map[string]float64{}
	for _, l := range w.Layers {
		if whole > 0 {
			split[l.Name] += l.Seconds / whole * writing / (writing + flushing)
		}
	}
	if flushing > 0 {
		queue := first(w.FlushQueue/w.Flush, 0)
		split[layers.Queue] += queue * flushing / (writing + flushing)
		split[layers.Flush] += (1 - queue) * flushing / (writing + flushing)
	}
	for _, name := range slices.SortedFunc(maps.Keys(split), layers.Compare) {
		parts = append(parts, Layer{name, split[name]})
	}
	return parts
}
