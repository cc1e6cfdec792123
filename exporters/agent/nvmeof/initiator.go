package nvmeof

import (
	"cmp"
	"errors"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/exporters/agent/foreign"
)

// Path is a namespace of a controller that this machine uses.
type Path struct {
	// Disk is the kernel's name of the namespace on this path (nvme0c1n1, or nvme0n1 without
	// multipathing), and Head the block device that is used, whatever its path.
	Disk, Head string
	// Controller is the kernel's name of the controller (nvme1).
	Controller string
	// Transport is tcp, rdma, fc or loop, and Address the target's, as HOST:PORT where it has both.
	Transport, Address string
	// NQN is the subsystem's name, and Namespace the namespace's number in it.
	NQN       string
	Namespace uint32
	// State is the controller's, such as live or connecting, and ANA the path's, such as optimized; empty
	// without multipathing.
	State, ANA string
	// InFlight is how many reads and writes the kernel counts on the path, if CountsInFlight says that it does.
	InFlight       uint64
	CountsInFlight bool
}

// Usable says whether commands can go by the path.
func (p Path) Usable() bool {
	closed := p.ANA == "inaccessible" || p.ANA == "persistent-loss" || p.ANA == "change"
	return p.State == "live" && !closed
}

// maxAttribute bounds what is read of an attribute in sysfs or configfs.
const maxAttribute = 4096

var (
	controllerName = regexp.MustCompile(`^nvme[0-9]+$`)
	diskName       = regexp.MustCompile(`^nvme([0-9]+)(c[0-9]+)?(n[0-9]+)$`)
)

// Controllers are the controllers over a network, and those of this machine's own disks.
type Controllers struct {
	Paths []Path
	// Remote is how many controllers over a network there are, also without a namespace.
	Remote int
	// Local are the disks on the machine itself.
	Local map[string]bool
}

// ReadControllers reads /sys/class/nvme. Controllers come and go while it is read: what is gone is left
// out.
func ReadControllers(sysfs string) (Controllers, error) {
	c := Controllers{Local: map[string]bool{}}
	class := filepath.Join(sysfs, "class", "nvme")
	entries, err := os.ReadDir(class)
	if errors.Is(err, os.ErrNotExist) {
		return c, nil
	}
	for _, e := range entries {
		if !controllerName.MatchString(e.Name()) {
			continue
		}
		folder := filepath.Join(class, e.Name())
		disks, err := os.ReadDir(folder)
		if err != nil {
			continue
		}
		transport := attribute(folder, "transport")
		local := transport == "pcie" || transport == "apple-nvme"
		if transport != "" && !local {
			c.Remote++
		}
		for _, d := range disks {
			parts := diskName.FindStringSubmatch(d.Name())
			switch {
			case parts == nil || transport == "":
			case local:
				c.Local[d.Name()] = true
			default:
				namespace, _ := strconv.ParseUint(attribute(folder, d.Name(), "nsid"), 10, 32)
				p := Path{
					Disk: d.Name(), Head: "nvme" + parts[1] + parts[3],
					Controller: e.Name(), Transport: transport,
					Address: address(attribute(folder, "address"), transport), NQN: attribute(folder, "subsysnqn"),
					Namespace: uint32(namespace),
					State:     attribute(folder, "state"), ANA: attribute(folder, d.Name(), "ana_state"),
				}
				p.InFlight, p.CountsInFlight = inFlight(attribute(folder, d.Name(), "inflight"))
				p.CountsInFlight = p.CountsInFlight && attribute(folder, d.Name(), "queue", "iostats") == "1"
				c.Paths = append(c.Paths, p)
			}
		}
	}
	return c, err
}

// attribute returns an attribute's value; empty if it cannot be read.
func attribute(elements ...string) string {
	text, err := foreign.ReadProc(filepath.Join(elements...), maxAttribute)
	if err != nil {
		return ""
	}
	return foreign.Text(strings.TrimSpace(string(text)), 256)
}

// address is HOST:PORT of "traddr=HOST,trsvcid=PORT,src_addr=…"; other transports' addresses stay as they
// are, and one that has none is named by its transport.
func address(text, transport string) string {
	fields := map[string]string{}
	for _, f := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(f, "=")
		fields[strings.TrimSpace(key)] = value
	}
	return Address(fields["traddr"], fields["trsvcid"], cmp.Or(text, transport))
}

// Address is the address of a port as both ends tell it, or other if it has none.
func Address(host, port, other string) string {
	switch {
	case host == "":
		return foreign.Text(other, maxName)
	case port == "" || port == "none":
		return foreign.Text(host, maxName)
	}
	return foreign.Text(net.JoinHostPort(host, port), maxName)
}

// inFlight is the sum of reads and writes in a disk's attribute inflight, if it has them.
func inFlight(text string) (sum uint64, ok bool) {
	fields := strings.Fields(text)
	for _, f := range fields {
		n, err := strconv.ParseUint(f, 10, 64)
		if err != nil {
			return 0, false
		}
		sum += n
	}
	return sum, len(fields) > 0
}
