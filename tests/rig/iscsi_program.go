package rig

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/tests/freeport"
)

// ISCSIProgram is a program in user space that is an iSCSI target with one disk.
type ISCSIProgram struct {
	*Process
	// Name is the target's name (IQN), and Address where it listens.
	Name, Address string
	// LUN is the disk's.
	LUN int

	t                     T
	network, disk, folder string // its address with a netmask, the file or device that it serves, and where its own files are
	management            int    // a port of its own
	direct                bool   // past the page cache
	within                func(*exec.Cmd) *exec.Cmd
}

// NewTgt starts tgt on this machine's loopback with a file as its disk. One thread serves initiators, others with the
// disk. It agrees to digests if the initiator requests them.
func NewTgt(t T, name, file string) *ISCSIProgram { return localProgram(t, name, file).serveTgt() }

// NewIstgt starts istgt on this machine's loopback with a file as its disk: each connection has threads of its own.
func NewIstgt(t T, name, file string) *ISCSIProgram { return localProgram(t, name, file).serveIstgt() }

func localProgram(t T, name, file string) *ISCSIProgram {
	t.Helper()
	p := &ISCSIProgram{t: t, Name: name, network: "127.0.0.1/8", disk: file, within: func(cmd *exec.Cmd) *exec.Cmd { return cmd }}
	var err error
	if p.Address, err = freeport.Address(); err != nil {
		t.Fatalf("%v", err)
	}
	if p.management, err = freeport.Find(); err != nil {
		t.Fatalf("%v", err)
	}
	return p
}

// makeFolder makes the folder for the program's own files.
func (p *ISCSIProgram) makeFolder() {
	var err error
	if p.folder, err = os.MkdirTemp("/var/tmp", "plumbline-iscsi-"); err != nil {
		p.t.Fatalf("%v", err)
	}
	p.t.Cleanup(func() { _ = os.RemoveAll(p.folder) })
}

// start starts the program, and returns once ready returns no error.
func (p *ISCSIProgram) start(cmd *exec.Cmd, ready func() error) {
	p.Process = Start(p.t, p.within(cmd))
	p.Await(p.t, ready)
}

// serveTgt has tgt serve the target (tgtadm(8)), whose LUN 0 is no disk.
func (p *ISCSIProgram) serveTgt() *ISCSIProgram {
	p.makeFolder()
	p.LUN = 1
	// It would be a folder of the machine's.
	env := append(os.Environ(), "TGT_IPC_SOCKET="+filepath.Join(p.folder, "socket"))
	port := strconv.Itoa(p.management)
	adm := func(mode, op string, args ...string) error {
		cmd := exec.Command(Tool(p.t, "tgtadm"), append([]string{"--control-port", port, "--lld", "iscsi", "--mode", mode, "--op", op, "--tid", "1"}, args...)...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
		}
		return nil
	}
	cmd := exec.Command(Tool(p.t, "tgtd"), "--foreground", "--control-port", port, "--pid-file", filepath.Join(p.folder, "pid"), "--iscsi", "portal="+p.Address)
	cmd.Env = env
	p.start(cmd, func() error { return adm("target", "new", "--targetname", p.Name) })
	unit := []string{"--lun", strconv.Itoa(p.LUN), "--backing-store", p.disk}
	if p.direct {
		unit = append(unit, "--bsoflags", "direct")
	}
	for _, err := range []error{
		adm("logicalunit", "new", unit...),
		adm("target", "update", "--name", "HeaderDigest", "--value", "CRC32C,None"),
		adm("target", "update", "--name", "DataDigest", "--value", "CRC32C,None"),
		adm("target", "bind", "--initiator-address", "ALL"),
	} {
		if err != nil {
			p.t.Fatalf("%v", err)
		}
	}
	return p
}

// istgtConfig is what istgt reads (its README): the names before and after the last colon of the target's, where it
// listens, and what it serves. istgt does not ping the initiator, which may respond late on an emulator.
const istgtConfig = `[Global]
  NodeBase "%[1]s"
  PidFile %[2]s/istgt.pid
  AuthFile %[2]s/auth.conf
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
  Portal UC1 127.0.0.1:%[3]d
  Netmask 127.0.0.1
[PortalGroup1]
  Portal DA1 %[4]s
[InitiatorGroup1]
  InitiatorName "ALL"
  Netmask %[5]s
[LogicalUnit1]
  TargetName %[6]s
  TargetAlias "plumbline"
  Mapping PortalGroup1 InitiatorGroup1
  AuthMethod None
  AuthGroup None
  UseDigest Auto
  UnitType Disk
  LUN0 Storage %[7]s Auto
`

// serveIstgt has istgt serve the target.
func (p *ISCSIProgram) serveIstgt() *ISCSIProgram {
	p.makeFolder()
	colon := strings.LastIndex(p.Name, ":")
	config := filepath.Join(p.folder, "istgt.conf")
	for path, text := range map[string]string{
		config:                               fmt.Sprintf(istgtConfig, p.Name[:colon], p.folder, p.management, p.Address, p.network, p.Name[colon+1:], p.disk),
		filepath.Join(p.folder, "auth.conf"): "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil { // it insists on the mode
			p.t.Fatalf("%v", err)
		}
	}
	p.start(exec.Command(Tool(p.t, "istgt"), "-D", "-c", config), func() error { return freeport.Listening(p.Address) })
	return p
}
