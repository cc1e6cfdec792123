package remote

import (
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// Path is a namespace of a controller that this machine uses; of iSCSI, a disk of a session.
type Path struct {
	// Disk is the kernel's name of the namespace on this path (nvme0c1n1, or nvme0n1 without multipathing; sda), and
	// Head the block device that is used, on any path.
	Disk, Head string
	// Sequence is the kernel's own number of the disk (diskseq), which no other disk ever gets; 0 if it cannot be read.
	Sequence uint64
	// Controller is the kernel's name of the controller (nvme1) or session (session1).
	Controller string
	// Transport is tcp, rdma, fc or loop, of iSCSI its driver's (tcp, iser, …), and Address the target's, as HOST:PORT
	// where it has both.
	Transport, Address string
	// Came is the address that the connection of an iSCSI session came to, and Initiator its own end's, both as
	// HOST:PORT; empty if the kernel does not report it.
	Came, Initiator string
	// Subsystem is the name of the subsystem (NQN) or target (IQN), and Number the namespace's in it, or the LUN.
	Subsystem string
	Number    uint32
	// Unit is the logical unit's own identifier (naa.…, t10.…), the same for all initiators and paths. It is empty if
	// it is not known, or if the vendor's targets are known to have the same LUNs for all.
	Unit string
	// State is the controller's or session's, such as live, connecting or logged_in, and Live reports whether it can be
	// used. Access is the path's, such as optimized; empty without multipathing.
	State, Access string
	Live          bool
	// Closed is set if the target, or the kernel, does not let commands take this path.
	Closed bool
	// InFlight is how many reads and writes the kernel counts on the path, if CountsInFlight is set.
	InFlight       uint64
	CountsInFlight bool
}

// Usable reports whether commands can go by the path.
func (p Path) Usable() bool { return p.Live && !p.Closed }

// Paths are what this machine has over a network, and its own disks.
type Paths struct {
	Paths []Path
	// Connections is how many controllers or sessions there are, also without a disk.
	Connections int
	// Local are the disks of the same kind on the machine itself, by Path.Sequence.
	Local map[uint64]bool
	// Unread is how many disks of controllers and sessions are in sysfs in a form that is not understood; they are left
	// out.
	Unread int
}

// maxAttribute bounds what is read of an attribute in sysfs or configfs.
const maxAttribute = 4096

// attribute returns an attribute's value; empty if it cannot be read.
func attribute(elements ...string) string {
	text, err := untrusted.ReadProc(filepath.Join(elements...), maxAttribute)
	if err != nil {
		return ""
	}
	return untrusted.Text(strings.TrimSpace(string(text)), 256)
}

// Address is the address of a port as both ends report it, or other if it has none.
func Address(host, port, other string) string {
	switch {
	case host == "":
		return untrusted.Text(other, maxName)
	case port == "" || port == "none":
		return untrusted.Text(host, maxName)
	}
	return untrusted.Text(net.JoinHostPort(host, port), maxName)
}

// sequence is the kernel's number of a disk, whose folder this is; 0 if it cannot be read.
func sequence(folder ...string) uint64 {
	n, _ := strconv.ParseUint(attribute(append(folder[:len(folder):len(folder)], "diskseq")...), 10, 64)
	return n
}

// addLocal notes a disk of this machine's own.
func (p *Paths) addLocal(sequence uint64) {
	if sequence != 0 {
		p.Local[sequence] = true
	}
}

// inFlight is how many reads and writes the kernel counts at a disk, if it counts them.
func inFlight(folder ...string) (sum uint64, ok bool) {
	if attribute(append(folder[:len(folder):len(folder)], "queue", "iostats")...) != "1" {
		return 0, false
	}
	fields := strings.Fields(attribute(append(folder[:len(folder):len(folder)], "inflight")...))
	for _, f := range fields {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0, false
		}
		sum += n
	}
	return sum, len(fields) > 0
}
