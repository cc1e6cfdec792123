package remote

import (
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

var (
	controllerName = regexp.MustCompile(`^nvme[0-9]+$`)
	diskName       = regexp.MustCompile(`^nvme([0-9]+)(c[0-9]+)?(n[0-9]+)$`)
)

// ReadNVMe reads /sys/class/nvme. Controllers come and go while it is read: what is gone is left
// out. Of the machine's own disks that are known nothing is read.
func ReadNVMe(sysfs string, known *Known) (Paths, error) {
	known.begin()
	defer known.end()
	c := Paths{Local: map[uint64]bool{}}
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
			c.Connections++
		}
		for _, d := range disks {
			parts := diskName.FindStringSubmatch(d.Name())
			switch {
			case transport == "": // it is going
			case parts == nil:
				if !local && strings.HasPrefix(d.Name(), "nvme") {
					c.Unread++
				}
			case local:
				file := filepath.Join(folder, d.Name())
				if n, ok := nodeOf(file); ok && !known.has(n, &c) {
					known.note(n, sequence(file), &c)
				}
			default:
				id := attribute(folder, d.Name(), "nsid")
				namespace, err := strconv.ParseUint(id, 10, 32)
				if err != nil && id != "" { // else it is going
					c.Unread++
					continue
				}
				p := Path{
					Disk: d.Name(), Head: "nvme" + parts[1] + parts[3],
					Controller: e.Name(), Transport: transport,
					Address: address(attribute(folder, "address"), transport), Subsystem: attribute(folder, "subsysnqn"),
					Number: uint32(namespace),
					State:  attribute(folder, "state"), Access: attribute(folder, d.Name(), "ana_state"),
				}
				p.Live = p.State == "live"
				p.Closed = p.Access == "inaccessible" || p.Access == "persistent-loss" || p.Access == "change"
				p.InFlight, p.CountsInFlight = inFlight(folder, d.Name())
				p.Sequence = sequence(folder, d.Name())
				c.Paths = append(c.Paths, p)
			}
		}
	}
	return c, err
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
