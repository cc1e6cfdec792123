package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// ISCSITargets are Targets over iSCSI, by the kernel's own target (LIO) or programs in user space (iscsi_user.go), and
// what this machine has of them by open-iscsi.
type ISCSITargets struct {
	*Targets
	made []string // in configfs, the first that has to go first
}

const (
	coreFolder  = configFolder + "/target/core"
	iscsiFolder = configFolder + "/target/iscsi"
	iscsiPort   = 3260
	sdFolder    = "/sys/bus/scsi/drivers/sd"

	initiatorName = "iqn.2026-11.io.plumbline:guest"
)

// openISCSI is what open-iscsi's programs read. An emulator may pause for longer than their timeouts, so neither end
// pings the other.
const openISCSI = `node.startup = manual
node.leading_login = No
node.session.timeo.replacement_timeout = 300
node.conn[0].timeo.login_timeout = 300
node.conn[0].timeo.logout_timeout = 300
node.conn[0].timeo.noop_out_interval = 0
node.conn[0].timeo.noop_out_timeout = 0
node.session.initial_login_retry_max = 8
node.session.scan = auto
`

// NewISCSITargets sets up targets with these names, each serving a disk of 16 MiB in memory with the delay of its entry
// in delays, if it has one, and starts the initiator's daemon.
func NewISCSITargets(t T, names []string, delays map[int]time.Duration) *ISCSITargets {
	n := &ISCSITargets{Targets: newTargets(t, "iscsi", 98, iscsiPort, "target_core_mod", "target_core_iblock", "iscsi_target_mod", "iscsi_tcp", "sd_mod")}
	n.folder(iscsiFolder)
	n.startDaemon()
	t.Cleanup(n.end)
	for i, name := range names {
		n.add(name, delays[i])
	}
	return n
}

// startDaemon starts open-iscsi's daemon, and returns once it answers.
func (n *ISCSITargets) startDaemon() {
	n.folder("/etc/iscsi")
	n.write(openISCSI, "/etc/iscsi/iscsid.conf")
	n.write("InitiatorName="+initiatorName+"\n", "/etc/iscsi/initiatorname.iscsi")
	daemon := Start(n.t, exec.Command("iscsid", "--foreground", "--no-pid-file"))
	daemon.Await(n.t, func() error {
		// That there is no session is an error, too, and an answer.
		if _, err := command(n.t, "iscsiadm", "--mode", "session"); err != nil && !strings.Contains(err.Error(), "No active sessions") {
			return err
		}
		return nil
	})
}

// add sets one up (Documentation/target/scripts.rst of the kernel, and what targetcli writes). The initiator has an ACL,
// as only there the target's pings can be turned off: it would end a session whose link is cut for 45 s.
func (n *ISCSITargets) add(iqn string, delay time.Duration) {
	one := n.Targets.add(iqn, delay)
	adapter := filepath.Join(coreFolder, fmt.Sprintf("iblock_%d", len(n.targets)))
	disk := n.folder(adapter, one.Disk)
	n.write("udev_path=/dev/"+one.Disk, disk, "control")
	n.write("1", disk, "enable")
	target := filepath.Join(iscsiFolder, iqn)
	group := filepath.Join(target, "tpgt_1")
	lun := n.folder(group, "lun", "lun_0")
	link := filepath.Join(lun, one.Disk)
	if err := os.Symlink(disk, link); err != nil {
		n.t.Fatalf("%v", err)
	}
	n.write("0", group, "attrib", "authentication")
	acl := n.folder(group, "acls", initiatorName)
	n.write("0", acl, "attrib", "nopin_timeout")
	mapped := n.folder(acl, "lun_0")
	mappedLink := filepath.Join(mapped, one.Disk)
	if err := os.Symlink(lun, mappedLink); err != nil {
		n.t.Fatalf("%v", err)
	}
	portal := filepath.Join(group, "np", one.Address)
	n.inside(one, "mkdir", portal)
	n.write("1", group, "enable")
	n.made = append(n.made, mappedLink, mapped, acl, link, lun, portal, group, target, disk, adapter)
}

// Connect has this machine use all targets, and returns the folder of each one's disk in sysfs.
func (n *ISCSITargets) Connect() []string {
	var disks []string
	for i := range n.targets {
		disks = append(disks, n.ConnectTo(i))
	}
	return disks
}

// ConnectTo has this machine use one target, and returns the folder of its disk in sysfs.
func (n *ISCSITargets) ConnectTo(i int) (disk string) {
	one := n.targets[i]
	n.node(one, "--op", "new")
	n.node(one, "--login")
	Eventually(n.t, DefaultTimeout, func() error {
		found, _ := filepath.Glob(filepath.Join(n.session(one), "device", "target*", "*:*:*:*", "block", "sd*"))
		if len(found) == 0 {
			return fmt.Errorf("no disk of %s", one.Name)
		}
		disk = found[0]
		// Not by the disk's own link to its device, which comes after the disk.
		n.write("300", filepath.Dir(filepath.Dir(disk)), "timeout")
		return nil
	})
	return disk
}

func (n *ISCSITargets) node(one *Target, args ...string) {
	n.call("iscsiadm", append([]string{"--mode", "node", "--targetname", one.Name, "--portal", one.Address}, args...)...)
}

// session is the folder in sysfs of the session with a target; empty if there is none.
func (n *ISCSITargets) session(one *Target) string {
	all, _ := filepath.Glob("/sys/class/iscsi_session/session*")
	for _, folder := range all {
		if name, err := os.ReadFile(filepath.Join(folder, "targetname")); err == nil && strings.TrimSpace(string(name)) == one.Name {
			return folder
		}
	}
	return ""
}

// Disconnect ends all sessions.
func (n *ISCSITargets) Disconnect() {
	for i := range n.targets {
		n.DisconnectFrom(i)
	}
}

// DisconnectFrom ends the session with one target.
func (n *ISCSITargets) DisconnectFrom(i int) { n.node(n.targets[i], "--logout") }

// end takes it all down, as far as it is there.
func (n *ISCSITargets) end() {
	for _, one := range n.targets {
		if n.session(one) != "" {
			undo(n.t, "iscsiadm", "--mode", "node", "--targetname", one.Name, "--portal", one.Address, "--logout")
		}
	}
	n.Targets.end(n.made...)
}

// device is the SCSI address of the device of a target that has a disk.
func (n *ISCSITargets) device(i int) string {
	one := n.targets[i]
	found, _ := filepath.Glob(filepath.Join(n.session(one), "device", "target*", "*:*:*:*", "block"))
	if len(found) != 1 {
		n.t.Fatalf("devices of %s with a disk: %v, not one", one.Name, found)
	}
	return filepath.Base(filepath.Dir(found[0]))
}

// SetUpAnew removes a target's disk from its device and sets it up again so many times. Its name stays, and its memory
// is reused.
func (n *ISCSITargets) SetUpAnew(i, times int) {
	address := n.device(i)
	for range times {
		n.write(address, sdFolder, "unbind")
		n.write(address, sdFolder, "bind")
	}
}

// ScanWhileSetUp removes a target's disk from its device and sets it up again so many times. Meanwhile it scans for the
// target's LUNs as fast as the target responds, and returns how often. Some requests are sent when the device has no
// disk, and answered when it has one.
func (n *ISCSITargets) ScanWhileSetUp(i, times int) (scans int) {
	host, _, _ := strings.Cut(n.device(i), ":")
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := os.WriteFile("/sys/class/scsi_host/host"+host+"/scan", []byte("- - -"), 0o644); err != nil {
				done <- err
				return
			}
			scans++
		}
	}()
	n.SetUpAnew(i, times)
	close(stop)
	if err := <-done; err != nil {
		n.t.Fatalf("%v", err)
	}
	return scans
}
