package remote

import (
	"os"
	"syscall"
)

// Known remembers the disks that no scan will find on a path, as long as they live, so that nothing is read of them
// again. Those whose medium can be changed are none of them: a new medium has a number of its own.
type Known struct {
	// disks are those of the latest scan, and next those of the one under way: the kernel's number of each, 0 if its
	// wire has none.
	disks, next map[node]uint64
}

// node is a folder or link of sysfs. Under the same name, the kernel gives it another number when the device is another
// one's.
type node struct {
	name   string
	number uint64
}

func nodeOf(file string) (n node, ok bool) {
	info, err := os.Lstat(file)
	if err != nil {
		return n, false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return n, false
	}
	return node{file, s.Ino}, true
}

// begin begins a scan.
func (k *Known) begin() { k.next = map[node]uint64{} }

// end forgets what the scan has not met.
func (k *Known) end() { k.disks, k.next = k.next, nil }

// has reports whether the disk at n is known, and notes it in all then.
func (k *Known) has(n node, all *Paths) bool {
	sequence, known := k.disks[n]
	if known {
		k.next[n] = sequence
		all.addLocal(sequence)
	}
	return known
}

// note remembers a disk of this machine's own. One whose number could not be read is read again.
func (k *Known) note(n node, sequence uint64, all *Paths) {
	if sequence != 0 {
		k.next[n] = sequence
		all.addLocal(sequence)
	}
}

// noteOther remembers a disk of another kind than the wire's.
func (k *Known) noteOther(n node) { k.next[n] = 0 }
