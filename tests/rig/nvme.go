package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// NVMeTargets are targets of the machine's own kernel, each behind a network link of its own, which can be slow, and what this machine
// has of them. They take the kernel's modules and configfs for their own: for guests of tests/kernels.
type NVMeTargets struct {
	t       T
	targets []*NVMeTarget
	served  []string // names of subsystems
	disks   []string
}

// NVMeTarget is one target with one namespace.
type NVMeTarget struct {
	// NQN is the subsystem's name and Address where it listens.
	NQN, Address string
	// Disk is the kernel's name of the disk in memory behind it.
	Disk string

	veth, space, host string // the link's name on this side, the network namespace of the other, and its address there
	port              string // its folder in configfs
}

const (
	nvmetFolder = "/sys/kernel/config/nvmet"
	nullFolder  = "/sys/kernel/config/nullb"
	nvmePort    = 4420
)

// NewNVMeTargets sets up targets with these names, each serving a disk of 16 MiB in memory that takes as long as its entry in delays
// says, if it has one.
func NewNVMeTargets(t T, names []string, delays map[int]time.Duration) *NVMeTargets {
	n := &NVMeTargets{t: t}
	for _, module := range []string{"configfs", "nvmet-tcp", "nvme-tcp", "veth", "sch_netem"} {
		n.call("modprobe", module)
	}
	n.call("modprobe", "null_blk", "nr_devices=0")
	if _, err := os.Stat(nvmetFolder); err != nil {
		n.call("mount", "-t", "configfs", "configfs", "/sys/kernel/config")
	}
	t.Cleanup(n.end)
	for i, name := range names {
		n.add(i+1, name, delays[i])
	}
	return n
}

// Of returns one of the targets.
func (n *NVMeTargets) Of(i int) *NVMeTarget { return n.targets[i] }

func (n *NVMeTargets) call(name string, args ...string) string {
	n.t.Helper()
	out, err := command(n.t, name, args...)
	if err != nil {
		n.t.Fatalf("%v", err)
	}
	return out
}

func (n *NVMeTargets) write(value string, path ...string) {
	n.t.Helper()
	if err := os.WriteFile(filepath.Join(path...), []byte(value), 0o644); err != nil {
		n.t.Fatalf("%v", err)
	}
}

// add sets one up.
func (n *NVMeTargets) add(i int, nqn string, delay time.Duration) {
	number := strconv.Itoa(i)
	one := &NVMeTarget{NQN: nqn, veth: "nvme-t" + number, space: "plumbline-nvme-" + number, host: fmt.Sprintf("10.99.%d.2", i),
		Disk: "plumbline-" + number, port: filepath.Join(nvmetFolder, "ports", number)}
	one.Address = fmt.Sprintf("%s:%d", one.host, nvmePort)
	n.targets = append(n.targets, one)

	n.call("ip", "netns", "add", one.space)
	n.call("ip", "link", "add", one.veth, "type", "veth", "peer", "name", "eth0", "netns", one.space)
	n.call("ip", "addr", "add", fmt.Sprintf("10.99.%d.1/24", i), "dev", one.veth)
	n.call("ip", "link", "set", one.veth, "up")
	n.call("ip", "-n", one.space, "addr", "add", one.host+"/24", "dev", "eth0")
	n.call("ip", "-n", one.space, "link", "set", "eth0", "up")
	n.makeDisk(one.Disk, delay)

	n.folder(one.port)
	n.write("tcp", one.port, "addr_trtype")
	n.write("ipv4", one.port, "addr_adrfam")
	n.write(one.host, one.port, "addr_traddr")
	n.write(strconv.Itoa(nvmePort), one.port, "addr_trsvcid")
	n.serve(nqn, one.Disk)
	n.link(nqn, one)
}

func (n *NVMeTargets) folder(elements ...string) string {
	folder := filepath.Join(elements...)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		n.t.Fatalf("%v", err)
	}
	return folder
}

// serve makes a subsystem of a disk.
func (n *NVMeTargets) serve(nqn, disk string) {
	n.served = append(n.served, nqn)
	subsystem := filepath.Join(nvmetFolder, "subsystems", nqn)
	namespace := n.folder(subsystem, "namespaces", "1")
	n.write("1", subsystem, "attr_allow_any_host")
	n.write("/dev/"+disk, namespace, "device_path")
	n.write("1", namespace, "enable")
}

// link has a target serve a subsystem. It listens in the network namespace of whoever makes the link; not by `ip netns exec`, which has a
// /sys of its own.
func (n *NVMeTargets) link(nqn string, one *NVMeTarget) {
	n.call("nsenter", "--net=/run/netns/"+one.space, "ln", "-s", filepath.Join(nvmetFolder, "subsystems", nqn), filepath.Join(one.port, "subsystems", nqn))
}

// Share has several targets serve one more subsystem, a disk of its own, connects to it by all of them, and returns the paths.
func (n *NVMeTargets) Share(nqn string, by ...int) []string {
	disk := "plumbline-shared"
	n.makeDisk(disk, 0)
	n.serve(nqn, disk)
	for _, i := range by {
		n.link(nqn, n.targets[i])
		n.connect(nqn, n.targets[i])
	}
	var paths []string
	Eventually(n.t, time.Minute, func() error {
		if paths = n.paths(nqn); len(paths) < len(by) {
			return fmt.Errorf("%d paths to %s, of %d", len(paths), nqn, len(by))
		}
		return nil
	})
	return paths
}

// Allow says whether initiators may use a target, whatever the subsystem.
func (n *NVMeTargets) Allow(i int, allowed bool) {
	state := "inaccessible"
	if allowed {
		state = "optimized"
	}
	n.write(state, n.targets[i].port, "ana_groups", "1", "ana_state")
}

// Break makes 4 KiB of a target's disk unreadable.
func (n *NVMeTargets) Break(i int, offset int64) {
	n.write(fmt.Sprintf("+%d-%d", offset/512, offset/512+7), nullFolder, n.targets[i].Disk, "badblocks")
}

// makeDisk makes a disk in memory (Documentation/block/null_blk.rst): its delay has a timer of its own, and the kernel's statistics
// of it are exact.
func (n *NVMeTargets) makeDisk(disk string, delay time.Duration) {
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
func (n *NVMeTargets) SlowLink(i int, delay time.Duration) {
	n.call("tc", "qdisc", "replace", "dev", n.targets[i].veth, "root", "netem", "delay", fmt.Sprintf("%dus", delay.Microseconds()), "limit", "10000")
}

// CutLink loses all that goes to a target, or no longer.
func (n *NVMeTargets) CutLink(i int, cut bool) {
	loss := "0%"
	if cut {
		loss = "100%"
	}
	n.call("tc", "qdisc", "replace", "dev", n.targets[i].veth, "root", "netem", "loss", loss)
}

// Connect has this machine use all targets, and returns the kernel's name of each path's disk.
func (n *NVMeTargets) Connect() []string {
	var disks []string
	for _, one := range n.targets {
		n.connect(one.NQN, one)
	}
	for _, one := range n.targets {
		Eventually(n.t, time.Minute, func() error {
			paths := n.paths(one.NQN)
			if len(paths) == 0 {
				return fmt.Errorf("no disk of %s", one.NQN)
			}
			disks = append(disks, paths[0])
			return nil
		})
	}
	return disks
}

// connect makes a controller. Each takes the file opened anew.
func (n *NVMeTargets) connect(nqn string, one *NVMeTarget) {
	n.write(fmt.Sprintf("transport=tcp,traddr=%s,trsvcid=%d,nqn=%s,nr_io_queues=2", one.host, nvmePort, nqn), "/dev/nvme-fabrics")
}

// controllers are the folders of those with this subsystem.
func (n *NVMeTargets) controllers(nqn string) (folders []string) {
	all, _ := filepath.Glob("/sys/class/nvme/nvme*")
	for _, folder := range all {
		if name, err := os.ReadFile(filepath.Join(folder, "subsysnqn")); err == nil && strings.TrimSpace(string(name)) == nqn {
			folders = append(folders, folder)
		}
	}
	return folders
}

// paths are the folders of the disks that this machine has of a subsystem.
func (n *NVMeTargets) paths(nqn string) (disks []string) {
	for _, folder := range n.controllers(nqn) {
		some, _ := filepath.Glob(filepath.Join(folder, "nvme*n*"))
		disks = append(disks, some...)
	}
	return disks
}

// Disconnect ends all connections.
func (n *NVMeTargets) Disconnect() {
	for _, nqn := range n.served {
		for _, folder := range n.controllers(nqn) {
			n.write("1", folder, "delete_controller")
		}
	}
}

// end takes it all down, as far as it is there.
func (n *NVMeTargets) end() {
	var gone []string // in this order
	for _, nqn := range n.served {
		for _, folder := range n.controllers(nqn) {
			_ = os.WriteFile(filepath.Join(folder, "delete_controller"), []byte("1"), 0o644)
		}
		for _, one := range n.targets {
			gone = append(gone, filepath.Join(one.port, "subsystems", nqn))
		}
	}
	for _, one := range n.targets {
		gone = append(gone, one.port)
		undo(n.t, "ip", "link", "del", one.veth)
		undo(n.t, "ip", "netns", "del", one.space)
	}
	for _, nqn := range n.served {
		subsystem := filepath.Join(nvmetFolder, "subsystems", nqn)
		gone = append(gone, filepath.Join(subsystem, "namespaces", "1"), subsystem)
	}
	for _, disk := range n.disks {
		gone = append(gone, filepath.Join(nullFolder, disk))
	}
	for _, path := range gone {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			n.t.Errorf("%v", err)
		}
	}
}
