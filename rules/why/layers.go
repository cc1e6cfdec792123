package why

import (
	"math"
	"slices"
)

// writeLayers splits a write as rules/decomposition.rules.yaml does, over the finding's window. But what
// lies unread at a replica whose process does not run is the replica's and not the network's.
func writeLayers(w Write, replicas []Replica) []Layer {
	if w.Count < 1 {
		return nil
	}
	slowest := slowestOf(replicas)
	var layers []Layer
	add := func(name string, seconds float64) {
		if Known(seconds) {
			layers = append(layers, Layer{name, max(seconds, 0)})
		}
	}
	add("queue", w.Queue)
	below := first(w.Engine, slowest.Time()) // what the device waits for, if that is seen
	path := math.NaN()
	if Known(w.Engine) && w.Path > w.Engine { // means of other requests may say otherwise
		path, below = w.Path-w.Engine, w.Path
	}
	if Known(below) {
		add("device", w.Device-below)
	} else {
		add("device", w.Device)
	}
	add("path", path)
	if Known(w.Engine) {
		add("engine", w.Engine-first(slowest.Time(), 0))
	}
	if Known(slowest.Time()) {
		network, inside := slowest.RoundTrip-slowest.Service, first(slowest.Service, slowest.RoundTrip)
		if slowest.keepsWaiting() {
			inside, network = inside+network, 0
		}
		add("network", network)
		// Others use the disk, too: never more of it than the replica itself took.
		disk := math.Min(slowest.Disk, slowest.Service)
		add("replica", inside-first(disk, 0))
		add("disk", disk)
	}
	total := first(w.Total, w.Engine)
	sum := 0.0
	for _, l := range layers {
		sum += l.Seconds
	}
	if len(layers) == 0 {
		add("device", total) // node_exporter alone: all there is
	} else if Known(total) && total-sum > 0.01*total {
		add("rest", total-sum)
	}
	return layers
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

// statementLayers are the phases, with sync split by what the device spent its time on: a sync
// waits for the writes that it sets off and for the flush after them.
func statementLayers(s Statement, w Write) []Layer {
	var layers []Layer
	for _, p := range s.Phases {
		if p.Name != "sync" {
			layers = append(layers, p)
		}
	}
	sync := seconds(s.Phases, "sync")
	writing, flushing := first(w.Count*w.Total, 0), first(w.FlushCount*w.Flush, 0)
	if !Known(sync) {
		return layers
	}
	if writing+flushing <= 0 || len(w.Layers) == 0 {
		return append(layers, Layer{"sync", sync})
	}
	perSecond := sync / (writing + flushing)
	sum := 0.0
	for _, l := range w.Layers {
		sum += l.Seconds
	}
	parts := map[string]float64{}
	for _, l := range w.Layers {
		if sum > 0 {
			parts[l.Name] += l.Seconds / sum * writing * perSecond
		}
	}
	if flushing > 0 {
		queue := first(w.FlushQueue/w.Flush, 0)
		parts["queue"] += queue * flushing * perSecond
		parts["flush"] += (1 - queue) * flushing * perSecond
	}
	for _, name := range Order[slices.Index(Order, "queue"):] {
		if v, ok := parts[name]; ok {
			layers = append(layers, Layer{name, v})
		}
	}
	return layers
}
