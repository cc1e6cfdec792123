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
	least := v.replicas
	for first := 0; first < len(v.bricks); first += v.set {
		up, sources := 0, 0
		for _, b := range v.bricks[first:min(first+v.set, len(v.bricks))] {
			switch {
			case b.up == nil:
				return 0, false
			case !*b.up || b.arbiter:
				continue
			}
			up++
			if b.heal != nil && *b.heal > 0 {
				sources++
			}
		}
		if sources > 0 {
			up = sources
		}
		least = min(least, up)
	}
	return least, true
}
