package collector

// volume is what one poll found of a started volume.
type volume struct {
	name string
	// replicas is how many bricks hold each file, without arbiters.
	replicas int
	// set is how many bricks, in the order of the list, make a replica set, arbiters included.
	set      int
	profiled bool
	bricks   []*brick
}

// brick is one brick of a volume.
type brick struct {
	name, node, device string
	// address is host:port of its process, or the name while there is none: it is never shared.
	address        string
	local, arbiter bool
	// up is nil if it is not known.
	up *bool
	// total is nil if the brick did not answer or nothing is counted.
	total *stats
	// heal is the number of entries it has to heal on others, nil if it is not known.
	heal *float64
}

// healthy is how many replicas hold all data and are there, in the worst of the replica sets; false
// if it is not known. In a set in which something is to be healed, the bricks that list it have it.
func (v *volume) healthy() (int, bool) {
	least, known := v.replicas, true
	for first := 0; first < len(v.bricks); first += v.set {
		n, sure := healthyOf(v.bricks[first:min(first+v.set, len(v.bricks))])
		if sure {
			least = min(least, n)
		}
		known = known && sure
	}
	if !known && least > 0 { // nothing is worse than a set of which none is left
		return 0, false
	}
	return least, true
}

// healthyOf is healthy for one replica set.
func healthyOf(set []*brick) (int, bool) {
	up, sources, unknown := 0, 0, 0
	for _, b := range set {
		switch {
		case b.up == nil:
			return 0, false
		case !*b.up || b.arbiter:
			continue
		}
		up++
		switch {
		case b.heal == nil:
			unknown++
		case *b.heal > 0:
			sources++
		}
	}
	switch {
	case unknown > 0 && up > 1:
		return 0, false // a lone brick has what there is, listed or not
	case sources > 0:
		return sources, true
	}
	return up, true
}
