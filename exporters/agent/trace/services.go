package trace

// Which replicas are on this node is known by their operations. A request to one of them whose operation is missing did
// not go to another node.

const (
	// maxServices bounds the replicas of this node that are remembered.
	maxServices = 4096
	// serviceKept is how long one is remembered that serves nothing, ns.
	serviceKept = uint64(3600e9)
)

// serviceKey is a replica's process and its own address, by their numbers.
type serviceKey struct{ process, peer uint32 }

// service is a replica of this node.
type service struct {
	name string // empty until it is known
	last uint64
}

// addService notes that a replica of this node has done an operation.
func (j *Joiner) addService(v *Event) {
	key := serviceKey{v.Owner, v.Peer}
	s := j.services[key]
	if s == nil {
		if len(j.services) >= maxServices {
			delete(j.services, oldest(j.services, func(s *service) uint64 { return s.last }))
		}
		s = &service{}
		j.services[key] = s
	}
	s.last = max(s.last, v.End)
}

// serves reports whether a replica of this name is on this node.
func (j *Joiner) serves(name string) bool {
	if name == "" {
		return false
	}
	for key, s := range j.services {
		if s.name == "" {
			s.name = j.options.Replica(key.process, key.peer)
		}
		if s.name == name {
			return true
		}
	}
	return false
}
