package remote

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

var (
	sessionName = regexp.MustCompile(`^session[0-9]+$`)
	// A host's disk by its SCSI address: host, channel, target, LUN.
	scsiAddress = regexp.MustCompile(`^([0-9]+):[0-9]+:[0-9]+:([0-9]+)$`)
)

// ReadISCSI reads /sys/class/iscsi_session and the disks of /sys/block; the link of each disk shows whether a session
// is above it. Sessions come and go while it reads: what is gone is left out. Of disks that are known nothing is read.
func ReadISCSI(sysfs string, known *Known) (Paths, error) {
	known.begin()
	defer known.end()
	all := Paths{Local: map[uint64]bool{}}
	sessions, err := entries(filepath.Join(sysfs, "class", "iscsi_session"))
	for _, name := range sessions {
		if sessionName.MatchString(name) {
			all.Connections++
		}
	}
	disks, more := entries(filepath.Join(sysfs, "block"))
	for _, disk := range disks {
		file := filepath.Join(sysfs, "block", disk)
		n, ok := nodeOf(file)
		if !ok || known.has(n, &all) {
			continue
		}
		link, err := os.Readlink(file)
		if err != nil {
			continue
		}
		parts := strings.Split(filepath.ToSlash(link), "/")
		at := slices.IndexFunc(parts, sessionName.MatchString)
		if at < 0 {
			// The programs see SCSI disks only.
			if i := len(parts); i > 3 && parts[i-2] == "block" && scsiAddress.MatchString(parts[i-3]) {
				// A disk whose medium can be changed gets another number then.
				if attribute(file, "removable") == "1" {
					all.addLocal(sequence(file))
				} else {
					known.note(n, sequence(file), &all)
				}
			} else {
				known.noteOther(n)
			}
			continue
		}
		switch p, going, err := sessionPath(filepath.Join(sysfs, "block"), disk, parts, at); {
		case err != nil:
			all.Unread++
		case !going:
			all.Paths = append(all.Paths, p)
		}
	}
	return all, errors.Join(err, more)
}

func entries(folder string) (names []string, err error) {
	found, err := os.ReadDir(folder)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range found {
		names = append(names, e.Name())
	}
	return names, err
}

// sessionPath is that of a disk below a session, whose place among the parts of the disk's link is at:
// …/hostN/sessionN/targetN:N:N/N:N:N:N/block/sdX. going states that the session is about to end.
func sessionPath(blocks, disk string, parts []string, at int) (p Path, going bool, err error) {
	below := parts[at+1:]
	if len(below) < 4 || below[2] != "block" || below[3] != disk {
		return p, false, errForm
	}
	address := scsiAddress.FindStringSubmatch(below[1])
	if address == nil {
		return p, false, errForm
	}
	lun, err := strconv.ParseUint(address[2], 10, 32)
	if err != nil {
		return p, false, errForm
	}
	host := filepath.Join(blocks, filepath.Join(parts[:at]...))
	session := parts[at]
	folder := filepath.Join(host, session)
	attributes := filepath.Join(folder, "iscsi_session", session)
	device := filepath.Join(folder, below[0], below[1])
	p = Path{
		Disk: disk, Head: head(blocks, disk), Controller: session,
		Transport: strings.TrimPrefix(attribute(host, "scsi_host", "host"+address[1], "proc_name"), "iscsi_"),
		Address:   portal(folder, session), Subsystem: attribute(attributes, "targetname"), Number: uint32(lun),
		State: strings.ToLower(attribute(attributes, "state")), Access: attribute(device, "access_state"),
	}
	p.Unit = unit(device)
	p.Came, p.Initiator = ends(folder, session, filepath.Join(host, "iscsi_host", "host"+address[1]))
	if p.Subsystem == "" || p.State == "" {
		return p, true, nil
	}
	state := attribute(device, "state")
	p.Live = p.State == "logged_in"
	p.Closed = state == "offline" || state == "transport-offline" || state == "blocked" ||
		p.Access == "standby" || p.Access == "unavailable" || p.Access == "offline" || p.Access == "transitioning"
	p.InFlight, p.CountsInFlight = inFlight(device, "block", disk)
	p.Sequence = sequence(device, "block", disk)
	return p, false, nil
}

// errForm is the error of a link in sysfs that has another form than those that are known.
var errForm = errors.New("not a path of a form that is known")

// sameForAll are the vendors, as initiators see them, of targets in user space that have no LUNs of one initiator's
// own: tgtd, istgt.
var sameForAll = map[string]bool{"IET": true, "FreeBSD": true}

// unit returns the identifier of the logical unit of a disk, whose folder this is.
func unit(device string) string {
	if sameForAll[attribute(device, "vendor")] {
		return ""
	}
	return strings.Join(strings.Fields(attribute(device, "wwid")), "_")
}

// head is the device that is used: a multipath one above the disk, if there is one.
func head(blocks, disk string) string {
	above, _ := entries(filepath.Join(blocks, disk, "holders"))
	for _, name := range above {
		if strings.HasPrefix(attribute(blocks, disk, "holders", name, "dm", "uuid"), "mpath-") {
			return name
		}
	}
	return disk
}

// ends returns both ends of a session's connection: where it came to, and where it is from. iscsi_tcp reports its own
// address with its host.
func ends(folder, session, host string) (came, initiator string) {
	connection := "connection" + strings.TrimPrefix(session, "session") + ":0"
	attributes := filepath.Join(folder, connection, "iscsi_connection", connection)
	own := attribute(attributes, "local_ipaddr")
	if own == "" {
		own = attribute(host, "ipaddress")
	}
	return endpoint(attribute(attributes, "address"), attribute(attributes, "port")), endpoint(own, attribute(attributes, "local_port"))
}

// endpoint is HOST:PORT; empty if either is none.
func endpoint(host, port string) string {
	address, err := netip.ParseAddr(host)
	number, wrong := strconv.ParseUint(port, 10, 16)
	if err != nil || wrong != nil || number == 0 {
		return ""
	}
	return netip.AddrPortFrom(address.Unmap().WithZone(""), uint16(number)).String()
}

// portal returns the address that a session's connection was made to: the configured one, else the one it came to.
func portal(folder, session string) string {
	connection := "connection" + strings.TrimPrefix(session, "session") + ":0"
	attributes := filepath.Join(folder, connection, "iscsi_connection", connection)
	for _, kind := range []string{"persistent_", ""} {
		host, port := attribute(attributes, kind+"address"), attribute(attributes, kind+"port")
		if address, err := netip.ParseAddr(host); err == nil && port != "" {
			return Address(address.Unmap().WithZone("").String(), port, "")
		}
	}
	return Address("", "", session)
}

// ServingISCSI reports whether this machine's kernel can be an iSCSI target: its target is there.
func ServingISCSI(sysfs string) bool {
	for _, folder := range []string{"module/iscsi_target_mod", "kernel/config/target/iscsi"} {
		if _, err := os.Stat(filepath.Join(sysfs, folder)); err == nil {
			return true
		}
	}
	return false
}

// ISCSIBacking returns what a target's LUN, by the target's own number, is made of. group is its portal group's folder,
// tpgt_1.
func ISCSIBacking(procfs, sysfs, iqn, group string, lun uint32) Backing {
	if !element(iqn) || !element(group) {
		return Backing{}
	}
	folder := filepath.Join(sysfs, "kernel", "config", "target", "iscsi", iqn, group, "lun", "lun_"+strconv.FormatUint(uint64(lun), 10))
	names, _ := entries(folder)
	for _, name := range names {
		if i, err := os.Lstat(filepath.Join(folder, name)); err != nil || i.Mode()&os.ModeSymlink == 0 {
			continue
		}
		if path := attribute(folder, name, "udev_path"); path != "" {
			return backing(procfs, sysfs, path)
		}
	}
	return Backing{}
}

// SocketAddress is the address in a struct sockaddr of the kernel's, as HOST:PORT; empty if it is of no kind that is
// known. Its family is in the machine's byte order, which is little endian wherever the agent is built for.
func SocketAddress(raw []byte) string {
	if len(raw) < 28 {
		return ""
	}
	var address netip.Addr
	switch binary.LittleEndian.Uint16(raw) {
	case 2: // AF_INET
		address = netip.AddrFrom4([4]byte(raw[4:8]))
	case 10: // AF_INET6
		address = netip.AddrFrom16([16]byte(raw[8:24])).Unmap()
	default:
		return ""
	}
	port := strconv.Itoa(int(binary.BigEndian.Uint16(raw[2:4])))
	return untrusted.Text(net.JoinHostPort(address.String(), port), maxName)
}
