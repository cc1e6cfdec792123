package input

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/rules/why"
)

// volumeKey is a volume among all clusters.
type volumeKey struct{ cluster, name string }

// place is a volume on a block device.
type place struct {
	key
	volume volumeKey
}

// mounted is what is known of a volume at a place.
type mounted struct {
	pod            podKey
	class, backend string
}

// places are where volumes were at a time, beside which others, and how many replicas they had.
type places struct {
	of      map[place]mounted
	disks   disks
	desired map[volumeKey]float64
}

// places queries where volumes were, once for each time.
func (a *querier) places(at time.Time) places {
	if p, ok := a.cached[at.UnixNano()]; ok {
		return p
	}
	p := places{map[place]mounted{}, disks{}, map[volumeKey]float64{}}
	everywhere := matchers(map[string]string{"cluster": a.within(a.cluster, "")})
	if a.q.Replicas > 0 {
		for _, s := range a.vector(everywhere.Replace(questions["replicas"].native), at) {
			p.desired[volumeOf(s.Metric)] = float64(s.Value)
		}
	}
	for _, s := range a.vector(everywhere.Replace(questions["below"].native), at) {
		if k := deviceOf(s.Metric); k.device != "" {
			p.disks.add(k, podKey{}, int(s.Value))
		}
	}
	for _, s := range a.vector(everywhere.Replace(questions["volumes"].native), at) {
		m := s.Metric
		if k := deviceOf(m); k.device != "" {
			pod := podKey{string(m["namespace"]), string(m["pod"])}
			p.disks.add(k, pod, 1)
			p.of[place{k, volumeOf(m)}] = mounted{pod, string(m["storageclass"]), string(m["backend"])}
		}
	}
	a.cached[at.UnixNano()] = p
	return p
}

func deviceOf(m model.Metric) key {
	return key{string(m["cluster"]), string(m["node"]), string(m["device"])}
}

func volumeOf(m model.Metric) volumeKey {
	return volumeKey{string(m["cluster"]), string(m["volume"])}
}

// others is how many volumes and replicas of others were beside a volume.
func (p places) others(at place) int { return p.disks.others(at.key, p.of[at].pod) }

// wanted reports whether a volume is of the question's target: of the class, or of the engine and with so many
// replicas.
func (p places) wanted(at place, q Question, t why.Target) bool {
	m, known := p.of[at]
	switch {
	case !known || at.cluster != t.Cluster:
		return false
	case q.Class != "":
		return m.class == q.Class
	}
	return m.backend == t.Backend && p.desired[at.volume] == float64(q.Replicas)
}

// spot is a device in a window in which it was the same volume's from begin to end, and how many volumes and replicas
// of others were on it.
type spot struct {
	place
	others int
	class  string
}

// span is a window that ends at a time: the server's device, none if it was not the one of its volume all the time, and
// those of the target class.
type span struct {
	at     time.Time
	source []spot
	others []spot
}

// spans are all windows, the latest first. A device's name may be another volume's after one was attached anew: so its
// volume is queried at each window's begin and end.
func (a *querier) spans(t why.Target) []span {
	var all []span
	source := volumeKey{t.Cluster, t.Volume}
	for i := range a.q.Windows {
		s := span{at: a.q.At.Add(-time.Duration(i) * a.q.Window)}
		end, begin := a.places(s.at), a.places(s.at.Add(-a.q.Window))
		for at := range end.of {
			if _, was := begin.of[at]; !was {
				continue
			}
			one := spot{at, max(begin.others(at), end.others(at)), end.of[at].class}
			switch {
			case at.volume == source && at.node == t.Node:
				s.source = append(s.source, one)
			case at.volume != source && begin.wanted(at, a.q, t) && end.wanted(at, a.q, t):
				s.others = append(s.others, one)
			}
		}
		s.source = s.source[:min(len(s.source), 1)]
		if len(s.source) > 0 { // the server's log may be on the disk of its data
			s.others = slices.DeleteFunc(s.others, func(o spot) bool { return o.key == s.source[0].key })
		}
		slices.SortFunc(s.others, func(x, y spot) int {
			return cmp.Or(cmp.Compare(x.node, y.node), cmp.Compare(x.device, y.device), cmp.Compare(x.volume.name, y.volume.name))
		})
		// A pod's log and data may be on one disk, which is one measurement.
		s.others = slices.CompactFunc(s.others, func(x, y spot) bool { return x.key == y.key })
		all = append(all, s)
	}
	return all
}

// alone keeps the spots that no other shares, if there are enough, or no others. Of a disk that several share it is not
// known whose its requests are: it returns by how many the least shared one is then.
func alone(spans []span, of func(*span) *[]spot) int {
	least, unshared := math.MaxInt, 0
	for i := range spans {
		for _, s := range *of(&spans[i]) {
			if s.others == 0 {
				unshared++
				continue
			}
			least = min(least, s.others)
		}
	}
	switch {
	case least == math.MaxInt:
		return 0
	case unshared < predict.LeastWindows:
		return least
	}
	for i := range spans {
		kept := of(&spans[i])
		*kept = slices.DeleteFunc(*kept, func(s spot) bool { return s.others > 0 })
	}
	return 0
}
