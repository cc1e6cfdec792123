package rig

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// NewUserISCSITargets sets up two targets in user space, each serving a disk in memory of 16 MiB at its first LUN for disks, and
// starts the initiator's daemon: tgt, of which Longhorn's first engine has one, with LUN 1; and istgt, of which cStor has one, with LUN 0.
func NewUserISCSITargets(t T, tgt, istgt string) *ISCSITargets {
	n := &ISCSITargets{Targets: newTargets(t, "user", 97, iscsiPort, "iscsi_tcp", "sd_mod")}
	n.startDaemon()
	n.serveTgt(n.Targets.add(tgt, 0))
	n.serveIstgt(n.Targets.add(istgt, 0))
	// Before the programs end: else nobody answers when sessions do.
	t.Cleanup(n.end)
	return n
}

// serve starts a target's program within its network, and returns once ready says so.
func (n *ISCSITargets) serve(one *Target, ready func() error, program string, args ...string) {
	n.call("ip", "-n", one.space, "link", "set", "lo", "up")
	p := Start(n.t, exec.Command("nsenter", append([]string{"--net=/run/netns/" + one.space, Tool(n.t, program)}, args...)...))
	Eventually(n.t, time.Minute, func() error {
		select {
		case <-p.Done:
			n.t.Fatalf("%s ended: %s", program, p.Log)
		default:
		}
		return ready()
	})
}

// serveTgt has tgt serve a target (tgtadm(8)).
func (n *ISCSITargets) serveTgt(one *Target) {
	n.folder("/run/tgtd")
	adm := func(mode, op string, args ...string) error {
		_, err := command(n.t, "tgtadm", append([]string{"--lld", "iscsi", "--mode", mode, "--op", op, "--tid", "1"}, args...)...)
		return err
	}
	n.serve(one, func() error { return adm("target", "new", "--targetname", one.Name) }, "tgtd", "--foreground", "--iscsi", "portal="+one.Address)
	for _, err := range []error{
		adm("logicalunit", "new", "--lun", "1", "--backing-store", "/dev/"+one.Disk),
		adm("target", "bind", "--initiator-address", "ALL"),
	} {
		if err != nil {
			n.t.Fatalf("%v", err)
		}
	}
}

// istgtConfig is what istgt reads (its README): the names before and after the last colon of the target's, where it listens, and
// what it serves. Nobody asks whether the initiator is there, which an emulator may be late to say.
const istgtConfig = `[Global]
  NodeBase "%s"
  PidFile /run/istgt.pid
  AuthFile /etc/istgt/auth.conf
  LogFacility "local7"
  Timeout 300
  NopInInterval 0
  DiscoveryAuthMethod None
  MaxSessions 16
  MaxConnections 4
  MaxR2T 32
  MaxOutstandingR2T 16
  DefaultTime2Wait 2
  DefaultTime2Retain 60
  FirstBurstLength 262144
  MaxBurstLength 1048576
  MaxRecvDataSegmentLength 262144
  InitialR2T Yes
  ImmediateData Yes
  DataPDUInOrder Yes
  DataSequenceInOrder Yes
  ErrorRecoveryLevel 0
[UnitControl]
  AuthMethod None
  AuthGroup None
  Portal UC1 127.0.0.1:3261
  Netmask 127.0.0.1
[PortalGroup1]
  Portal DA1 %s
[InitiatorGroup1]
  InitiatorName "ALL"
  Netmask %s
[LogicalUnit1]
  TargetName %s
  TargetAlias "plumbline"
  Mapping PortalGroup1 InitiatorGroup1
  AuthMethod None
  AuthGroup None
  UseDigest Auto
  UnitType Disk
  LUN0 Storage /dev/%s Auto
`

// serveIstgt has istgt serve a target.
func (n *ISCSITargets) serveIstgt(one *Target) {
	folder := n.folder("/etc/istgt")
	colon := strings.LastIndex(one.Name, ":")
	n.write(fmt.Sprintf(istgtConfig, one.Name[:colon], one.Address, one.host+"/24", one.Name[colon+1:], one.Disk), folder, "istgt.conf")
	n.write("", folder, "auth.conf")
	if err := os.Chmod(filepath.Join(folder, "auth.conf"), 0o600); err != nil { // it insists
		n.t.Fatalf("%v", err)
	}
	n.serve(one, func() error {
		c, err := net.Dial("tcp", one.Address)
		if err == nil {
			err = c.Close()
		}
		return err
	}, "istgt", "-D", "-c", filepath.Join(folder, "istgt.conf"))
}
