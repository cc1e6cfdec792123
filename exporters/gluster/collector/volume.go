package collector

import "time"

// volume is what one poll found of a started volume.
type volume struct {
	name string
	// replicas is how many bricks hold each file, without arbiters.
	replicas int
	// dispersed is set if no brick has whole files: then it is no replica, and some may be down.
	dispersed bool
	// set is how many bricks, in the order of the list, make a replica set, arbiters included.
	set      int
	profiled bool
	bricks   []*brick
	// profiledAt and healedAt are when the bricks' totals and heals were queried; zero if they never were.
	profiledAt, healedAt time.Time
}

// inherit takes over the data of the bricks that may have run before this poll, until the next query or until it is too
// old.
func (v *volume) inherit(old *volume, now time.Time) {
	v.profiledAt, v.healedAt = old.profiledAt, old.healedAt
	former := map[string]*brick{}
	for _, b := range old.bricks {
		former[b.name] = b
	}
	for _, b := range v.bricks {
		before := former[b.name]
		if before == nil || b.up != nil && !*b.up {
			continue
		}
		if v.profiled && now.Sub(v.profiledAt) < maxAge {
			b.total = before.total
		}
		if now.Sub(v.healedAt) < maxAge {
			b.heal = before.heal
		}
	}
}

// brick is one brick of a volume.
type brick struct {
	name, node, device string
	// address is host:port of its process, or the name while there is none or if the process serves other bricks of the
	// volume, too (cluster.brick-multiplex): it is never shared.
	address        string
	local, arbiter bool
	// noDevice is why its disk is not known, if it is this machine's.
	noDevice error
	// up is nil if it is not known.
	up *bool
	// total is nil if the brick did not answer or nothing is counted.
	total *stats
	// heal is the number of entries it has to heal on others, nil if it is not known.
	heal *float64
}

// healthy returns how many replicas hold all data and are available, in the worst of the replica sets. In a set with
// entries to heal, the bricks that list them have the data. Bricks of unknown state count as healthy: the number is
// then an upper bound. It returns false if all may be well and not all is known. A brick that is down is therefore
// reported whether the heal counts are known or not.
func (v *volume) healthy() (int, bool) {
	least, exact := v.replicas, true
	for first := 0; first < len(v.bricks); first += v.set {
		n, sure := healthyOf(v.bricks[first:min(first+v.set, len(v.bricks))])
		least, exact = min(least, n), exact && sure
	}
	if !exact && least >= v.replicas {
		return 0, false
	}
	return least, true
}

// healthyOf is how many bricks of one replica set can be healthy at the most, and whether so many are.
func healthyOf(set []*brick) (most int, exact bool) {
	there, sources, uncounted, unseen := 0, 0, 0, 0
	for _, b := range set {
		switch {
		case b.arbiter || b.up != nil && !*b.up:
			continue
		case b.up == nil:
			unseen++
		case b.heal == nil:
			uncounted++
		case *b.heal > 0:
			sources++
		}
		there++
	}
	switch {
	case sources > 0:
		return sources + uncounted + unseen, uncounted+unseen == 0
	case there == 1 && unseen == 0:
		return 1, true // a lone brick has what there is, listed or not
	}
	return there, uncounted+unseen == 0
}
