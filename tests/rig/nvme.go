package rig

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// NVMeTargets are Targets over NVMe/TCP, by the kernel's own target or a program in user space (nvme_user.go), and what
// this machine has of them.
type NVMeTargets struct {
	*Targets
	// More is added to the initiator's options when it connects, such as ",hdr_digest,data_digest".
	More string
	// Program is the one in user space.
	Program *Process

	served []string // names of subsystems
}

const (
	nvmetFolder = configFolder + "/nvmet"
	nvmePort    = 4420
)

// NewNVMeTargets sets up targets with these names, each serving a disk of 16 MiB in memory with the delay of its entry
// in delays, if it has one.
func NewNVMeTargets(t T, names []string, delays map[int]time.Duration) *NVMeTargets {
	n := &NVMeTargets{Targets: newTargets(t, "nvme", 99, nvmePort, "nvmet-tcp", "nvme-tcp")}
	n.raiseTimeouts()
	t.Cleanup(n.end)
	for i, name := range names {
		n.add(name, delays[i])
	}
	return n
}

// raiseTimeouts raises the initiator's timeouts: an emulator may pause for longer than the kernel would wait.
func (n *NVMeTargets) raiseTimeouts() {
	for _, timeout := range []string{"io_timeout", "admin_timeout"} {
		n.write("300", "/sys/module/nvme_core/parameters", timeout)
	}
}

// add sets one up.
func (n *NVMeTargets) add(nqn string, delay time.Duration) {
	one := n.Targets.add(nqn, delay)
	port := n.folder(n.portOf(one))
	n.write("tcp", port, "addr_trtype")
	n.write("ipv4", port, "addr_adrfam")
	n.write(one.host, port, "addr_traddr")
	n.write(strconv.Itoa(nvmePort), port, "addr_trsvcid")
	n.serve(nqn, one.Disk)
	n.link(nqn, one)
}

// NVMeHead is the block device that is used of a path, by the path's folder in sysfs or its name: /dev/nvme0n1 of
// nvme0c1n1.
func NVMeHead(disk string) string {
	name := filepath.Base(disk)
	if c := strings.LastIndex(name, "c"); c > 0 {
		name = name[:c] + name[strings.LastIndex(name, "n"):]
	}
	return "/dev/" + name
}

// portOf is a target's folder in configfs.
func (n *NVMeTargets) portOf(one *Target) string {
	for i, other := range n.targets {
		if other == one {
			return filepath.Join(nvmetFolder, "ports", strconv.Itoa(i+1))
		}
	}
	n.t.Fatalf("%s is no target here", one.Name)
	return ""
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

// link has a target serve a subsystem. It listens in the network namespace of the process that makes the link.
func (n *NVMeTargets) link(nqn string, one *Target) {
	n.inside(one, "ln", "-s", filepath.Join(nvmetFolder, "subsystems", nqn), filepath.Join(n.portOf(one), "subsystems", nqn))
}

// Share has several targets serve one more subsystem, a disk of its own, connects to it by all of them, and returns the
// paths.
func (n *NVMeTargets) Share(nqn string, by ...int) []string {
	disk := "plumbline-shared"
	n.makeDisk(disk, 0)
	n.serve(nqn, disk)
	for _, i := range by {
		n.link(nqn, n.targets[i])
		n.connect(nqn, n.targets[i])
	}
	var paths []string
	Eventually(n.t, DefaultTimeout, func() error {
		if paths = n.paths(nqn); len(paths) < len(by) {
			return fmt.Errorf("%d paths to %s, of %d", len(paths), nqn, len(by))
		}
		return nil
	})
	return paths
}

// Allow sets whether initiators may use a target, whatever the subsystem.
func (n *NVMeTargets) Allow(i int, allowed bool) {
	state := "inaccessible"
	if allowed {
		state = "optimized"
	}
	n.write(state, n.portOf(n.targets[i]), "ana_groups", "1", "ana_state")
}

// Connect has this machine use all targets, and returns the kernel's name of each path's disk.
func (n *NVMeTargets) Connect() []string {
	var disks []string
	for _, one := range n.targets {
		n.connect(one.Name, one)
	}
	for _, one := range n.targets {
		Eventually(n.t, DefaultTimeout, func() error {
			paths := n.paths(one.Name)
			if len(paths) == 0 {
				return fmt.Errorf("no disk of %s", one.Name)
			}
			// It comes after its path.
			if _, err := os.Stat(NVMeHead(paths[0])); err != nil {
				return err
			}
			disks = append(disks, paths[0])
			return nil
		})
	}
	return disks
}

// connect makes a controller. Each opens the file again.
func (n *NVMeTargets) connect(nqn string, one *Target) {
	n.write(fmt.Sprintf("transport=tcp,traddr=%s,trsvcid=%d,nqn=%s,nr_io_queues=2,keep_alive_tmo=300%s", one.host, nvmePort, nqn, n.More), "/dev/nvme-fabrics")
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

// leave ends the connections that are there.
func (n *NVMeTargets) leave() {
	for _, nqn := range n.served {
		for _, folder := range n.controllers(nqn) {
			_ = os.WriteFile(filepath.Join(folder, "delete_controller"), []byte("1"), 0o644)
		}
	}
}

// end takes it all down, as far as it is there.
func (n *NVMeTargets) end() {
	n.leave()
	var gone []string // in this order
	for _, nqn := range n.served {
		for _, one := range n.targets {
			gone = append(gone, filepath.Join(n.portOf(one), "subsystems", nqn))
		}
	}
	for _, one := range n.targets {
		gone = append(gone, n.portOf(one))
	}
	for _, nqn := range n.served {
		subsystem := filepath.Join(nvmetFolder, "subsystems", nqn)
		gone = append(gone, filepath.Join(subsystem, "namespaces", "1"), subsystem)
	}
	n.Targets.end(gone...)
}
