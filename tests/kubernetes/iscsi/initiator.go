package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// records is the node's folder of what iscsiadm has discovered and logged in to.
const records = "/var/lib/plumbline-iscsi"

// record is what iscsiadm keeps of a target.
type record struct {
	Portal string // the address of its tgtd
	Disk   string // its block device's name, where it is logged in to
}

// What iscsiadm ends with where there is no such record or session, and where there is a session already.
const noRecord, sessionExists = 21, 15

func folder(target string) string {
	return filepath.Join(records, strings.ReplaceAll(target, "/", "_"))
}

// mountOf is where the bridge of a target shows volumeFile.
func mountOf(target string) string { return filepath.Join(folder(target), "mount") }

// volumeFile is what longhorn-bridge calls its file.
const volumeFile = "volume"

func read(target string) (record, error) {
	var r record
	text, err := os.ReadFile(filepath.Join(folder(target), "record"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, exitCode{errors.New("no records found"), noRecord}
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

func (r record) write(target string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder(target), 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder(target), "record"), text, 0o600)
}

func iscsiadm(arguments []string) error {
	flags := flag.NewFlagSet("iscsiadm", flag.ExitOnError)
	mode, op := flags.String("m", "", ""), flags.String("o", "", "")
	portal, target := flags.String("p", "", ""), flags.String("T", "", "")
	detail := flags.Int("P", 0, "")
	version, login, logout, short, long := flags.Bool("version", false, ""), flags.Bool("login", false, ""), flags.Bool("logout", false, ""),
		flags.Bool("R", false, ""), flags.Bool("rescan", false, "")
	for _, ignored := range []string{"t", "n", "v"} {
		flags.String(ignored, "", "")
	}
	_ = flags.Parse(arguments) // it exits
	if *version {
		fmt.Println("iscsiadm version 2.1.8")
		return nil
	}
	switch *mode {
	case "discovery":
		return discover(*portal)
	case "session":
		return sessions(*detail > 0)
	case "node":
	default:
		return fmt.Errorf("-m %q is not known here", *mode)
	}
	r, err := read(*target)
	switch {
	case err != nil:
		return err
	case *login:
		return r.login(*target)
	case *logout:
		return r.logout(*target)
	case *short || *long:
		return r.rescan()
	case *op == "delete":
		return os.RemoveAll(folder(*target))
	case *op == "update":
		return nil
	case *op == "" || *op == "show":
		fmt.Println("node.session.scan = auto")
		return nil
	}
	return fmt.Errorf("-o %s is not known here", *op)
}

func discover(portal string) error {
	all, err := targets(portal)
	if err != nil {
		return err
	}
	for _, t := range all {
		fmt.Printf("%s:%s,1 %s\n", portal, port, t.Name)
		if r, err := read(t.Name); err == nil && r.Disk != "" {
			continue
		}
		if err := (record{Portal: portal}).write(t.Name); err != nil {
			return err
		}
	}
	return nil
}

func sessions(detailed bool) error {
	names, err := os.ReadDir(records)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	found := 0
	for _, entry := range names {
		r, err := read(entry.Name())
		if err != nil || r.Disk == "" {
			continue
		}
		found++
		if !detailed {
			fmt.Printf("tcp: [%d] %s:%s,1 %s (non-flash)\n", found, r.Portal, port, entry.Name())
			continue
		}
		fmt.Printf("Target: %s (non-flash)\n\tCurrent Portal: %s:%s,1\n\tPersistent Portal: %s:%s,1\n\t\tAttached SCSI devices:\n"+
			"\t\tscsi%d Channel 00 Id 0 Lun: 0\n\t\tscsi%d Channel 00 Id 0 Lun: 1\n\t\t\tAttached scsi disk %s\t\tState: running\n",
			entry.Name(), r.Portal, port, r.Portal, port, found, found, r.Disk)
	}
	if found == 0 {
		return exitCode{errors.New("no active sessions"), noRecord}
	}
	return nil
}

// login mounts the volume's file and attaches a loop device to it.
func (r record) login(target string) error {
	if r.Disk != "" {
		return exitCode{errors.New("session exists"), sessionExists}
	}
	all, err := targets(r.Portal)
	if err != nil {
		return err
	}
	for _, t := range all {
		if t.Name != target {
			continue
		}
		file, err := bridge(t)
		if err != nil {
			return err
		}
		device, err := output("losetup", "--find", "--show", "--direct-io=on", file)
		if err != nil {
			return err
		}
		r.Disk = strings.TrimPrefix(device, "/dev/")
		if err := showDisk(r.Disk); err != nil {
			return err
		}
		return r.write(target)
	}
	return exitCode{fmt.Errorf("%s has no target %s", r.Portal, target), noRecord}
}

// bridge starts the bridge to an engine, which lives on without iscsiadm, and returns its file once it is there.
func bridge(t Target) (file string, err error) {
	mount := mountOf(t.Name)
	if err := os.MkdirAll(mount, 0o700); err != nil {
		return "", err
	}
	log, err := os.Create(filepath.Join(folder(t.Name), "log"))
	if err != nil {
		return "", err
	}
	defer log.Close()
	cmd := exec.Command("longhorn-bridge", fmt.Sprintf("--socket=/proc/%d/root%s", t.Tgtd, t.Socket), fmt.Sprintf("--size=%dB", t.Size), "--directory="+mount)
	cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = log, log, &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	file = filepath.Join(mount, volumeFile)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := os.Stat(file); err == nil {
			return file, nil
		}
		select {
		case <-tick.C:
		case err := <-ended:
			text, _ := os.ReadFile(log.Name())
			return "", fmt.Errorf("longhorn-bridge: %v: %s", err, text)
		}
	}
}

// disks is what the node's tests put over /sys/block: the links of the real one. Longhorn writes to a disk's device/timeout,
// which a loop device does not have.
const disks = "/sys/block"

// showDisk gives a loop device a folder with all that sysfs has of it, and a folder device.
func showDisk(name string) error {
	real := filepath.Join("/sys/devices/virtual/block", name)
	entries, err := os.ReadDir(real)
	if err != nil {
		return err
	}
	shown := filepath.Join(disks, name)
	if err := os.RemoveAll(shown); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(shown, "device"), 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(real, e.Name()), filepath.Join(shown, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// hideDisk makes showDisk undone.
func hideDisk(name string) error {
	if err := os.RemoveAll(filepath.Join(disks, name)); err != nil {
		return err
	}
	return os.Symlink(filepath.Join("../devices/virtual/block", name), filepath.Join(disks, name))
}

func (r record) logout(target string) error {
	if r.Disk == "" {
		return exitCode{errors.New("no session found"), noRecord}
	}
	if _, err := output("losetup", "--detach", "/dev/"+r.Disk); err != nil {
		return err
	}
	// Who still has the file open keeps it without the mount; the bridge ends with the last of them.
	if err := syscall.Unmount(mountOf(target), syscall.MNT_DETACH); err != nil {
		return fmt.Errorf("unmounting the bridge of %s: %w", target, err)
	}
	if err := hideDisk(r.Disk); err != nil {
		return err
	}
	r.Disk = ""
	return r.write(target)
}

func (r record) rescan() error {
	if r.Disk == "" {
		return exitCode{errors.New("no session found"), noRecord}
	}
	_, err := output("losetup", "--set-capacity", "/dev/"+r.Disk)
	return err
}

func output(program string, arguments ...string) (string, error) {
	out, err := exec.Command(program, arguments...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", program, strings.Join(arguments, " "), err, out)
	}
	return strings.TrimSpace(string(out)), nil
}
