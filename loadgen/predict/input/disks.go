package input

// podKey is a pod of the queried cluster, empty if it is not known.
type podKey struct{ namespace, pod string }

// disks are how many volumes and replicas each pod has on a block device; replicas are nobody's.
type disks map[key]map[podKey]int

func (d disks) add(k key, pod podKey, n int) {
	if d[k] == nil {
		d[k] = map[podKey]int{}
	}
	d[k][pod] += n
}

// others is how many volumes and replicas on a device are not this pod's: its data and its log may be on one disk. A
// volume whose pod is not known is one of its own.
func (d disks) others(k key, pod podKey) int {
	n := 0
	for p, count := range d[k] {
		switch {
		case p != pod:
			n += count
		case p == podKey{}:
			n += count - 1
		}
	}
	return n
}
