package rig

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// Targets are targets of the machine's own kernel over a storage network, each behind a network link of its own, which
// can be slow, with a disk in memory of its own. They take the kernel's modules and configfs for their own: for guests
// of tests/kernels.
type Targets struct {
	t       T
	kind    string // in the names of what they are made of
	subnet  int    // the second byte of their addresses
	port    int
	targets []*Target
	disks   []string
}

// Target is one target with one disk.
type Target struct {
	// Name is the subsystem's name (NQN) or the target's (IQN), and Address where it listens.
	Name, Address string
	// Disk is the kernel's name of the disk in memory behind it.
	Disk string

	veth, space, host string // the link's name on this side, the network namespace of the other, and its address there
}

const (
	configFolder = "/sys/kernel/config"
	nullFolder   = configFolder + "/nullb"
)

// newTargets loads modules and mounts configfs.
func newTargets(t T, kind string, subnet, port int, modules ...string) *Targets {
	n := &Targets{t: t, kind: kind, subnet: subnet, port: port}
	for _, module := range append([]string{"configfs", "veth", "sch_netem"}, modules...) {
		n.call("modprobe", module)
	}
	n.call("modprobe", "null_blk", "nr_devices=0")
	if _, err := os.Stat(nullFolder); err != nil {
		n.call("mount", "-t", "configfs", "configfs", configFolder)
	}
	return n
}

// Of returns one of the targets.
func (n *Targets) Of(i int) *Target { return n.targets[i] }

func (n *Targets) call(name string, args ...string) string {
	n.t.Helper()
	out, err := command(n.t, name, args...)
	if err != nil {
		n.t.Fatalf("%v", err)
	}
	return out
}

func (n *Targets) write(value string, path ...string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(path...), []byte(value), 0o644); err != nil {
		n.t.Fatalf("%v", err)
	}
}

func (n *Targets) folder(elements ...string) string {
	folder := filepath.Join(elements...)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		n.t.Fatalf("%v", err)
	}
	return folder
}

// Break makes 4 KiB of a target's disk unreadable.
func (n *Targets) Break(i int, offset int64) {
	n.write(fmt.Sprintf("+%d-%d", offset/512, offset/512+7), nullFolder, n.targets[i].Disk, "badblocks")
}

// makeDisk makes a disk in memory (Documentation/block/null_blk.rst): its delay has a timer of its own, and the
// kernel's statistics of it are exact.
func (n *Targets) makeDisk(disk string, delay time.Duration) {
	n.disks = append(n.disks, disk)
	folder := n.folder(nullFolder, disk)
	n.write("16", folder, "size")
	n.write("1", folder, "memory_backed")
	n.write("8", folder, "cache_size") // else newer kernels send it no flushes
	if delay > 0 {
		n.write("2", folder, "irqmode")
		n.write(strconv.FormatInt(delay.Nanoseconds(), 10), folder, "completion_nsec")
	}
	n.write("1", folder, "power")
}

// SlowLink delays all that goes to a target.
func (n *Targets) SlowLink(i int, delay time.Duration) {
	n.call("tc", "qdisc", "replace", "dev", n.targets[i].veth, "root", "netem", "delay", fmt.Sprintf("%dus", delay.Microseconds()), "limit", "10000")
}

// CutLink loses all that goes to a target, or no longer.
func (n *Targets) CutLink(i int, cut bool) {
	loss := "0%"
	if cut {
		loss = "100%"
	}
	n.call("tc", "qdisc", "replace", "dev", n.targets[i].veth, "root", "netem", "loss", loss)
}

// add makes a link and a disk for one more target.
func (n *Targets) add(name string, delay time.Duration) *Target {
	i := len(n.targets) + 1
	number := strconv.Itoa(i)
	one := &Target{Name: name, veth: n.kind + "-t" + number, space: "plumbline-" + n.kind + "-" + number, host: fmt.Sprintf("10.%d.%d.2", n.subnet, i),
		Disk: "plumbline-" + n.kind + number}
	one.Address = net.JoinHostPort(one.host, strconv.Itoa(n.port))
	n.targets = append(n.targets, one)
	n.call("ip", "netns", "add", one.space)
	n.call("ip", "link", "add", one.veth, "type", "veth", "peer", "name", "eth0", "netns", one.space)
	n.call("ip", "addr", "add", fmt.Sprintf("10.%d.%d.1/24", n.subnet, i), "dev", one.veth)
	n.call("ip", "link", "set", one.veth, "up")
	n.call("ip", "-n", one.space, "addr", "add", one.host+"/24", "dev", "eth0")
	n.call("ip", "-n", one.space, "link", "set", "eth0", "up")
	n.makeDisk(one.Disk, delay)
	return one
}

// inside calls a program in a target's network namespace: the kernel listens there, too. Not by `ip netns exec`, which
// has a /sys of its own.
func (n *Targets) inside(one *Target, command ...string) {
	n.call("nsenter", append([]string{"--net=/run/netns/" + one.space}, command...)...)
}

// end takes links and disks down, after what is made of them.
func (n *Targets) end(made ...string) {
	for _, one := range n.targets {
		undo(n.t, "ip", "link", "del", one.veth)
		undo(n.t, "ip", "netns", "del", one.space)
	}
	for _, disk := range n.disks {
		made = append(made, filepath.Join(nullFolder, disk))
	}
	for _, path := range made {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			n.t.Errorf("%v", err)
		}
	}
}
