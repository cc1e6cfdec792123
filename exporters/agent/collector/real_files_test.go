package collector

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/foreign"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/volume"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// loopOf makes a loop device of an empty file.
func loopOf(t *testing.T, size int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, size)); err != nil {
		t.Fatal(err)
	}
	device, err := rig.AttachLoop(t, file)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(device)
}

// kernelHas reports whether this machine's kernel has a line with a word in a list of its own, such as
// /proc/filesystems, after a module was requested.
func kernelHas(t *testing.T, list, word, module string) bool {
	t.Helper()
	if modprobe, err := testkit.Find("modprobe"); err == nil {
		_ = osexec.Command(modprobe, module).Run() // what comes of it is in the list
	}
	text, err := os.ReadFile(list)
	if err != nil {
		t.Fatal(err)
	}
	has := slices.Contains(strings.Fields(string(text)), word)
	if !has {
		t.Logf("the kernel has no %s", word)
	}
	return has
}

// must runs a command.
func must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := osexec.Command(testkit.Tool(t, name), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// undone runs a command when the test ends.
func undone(t *testing.T, name string, args ...string) {
	t.Helper()
	t.Cleanup(func() {
		// A program that scans devices, such as udev, may have one open for a moment.
		if err := testkit.Await(time.Minute, func() error {
			out, err := osexec.Command(testkit.Tool(t, name), args...).CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		}); err != nil {
			t.Errorf("%s %v: %v", name, args, err)
		}
	})
}

// realFiles is a file system of the kernel's own: mount mounts it and returns the folder for files, the disk that it is
// on, empty if it is on none, and the disks below.
type realFiles struct {
	name  string
	mount func(t *testing.T, at string) (folder, disk string, below []string)
}

// mapped is a file system on a device of the device mapper's, which make makes of a loop device and returns as it is in
// /dev.
func mapped(name string, make func(t *testing.T, loop, name string) (device string)) realFiles {
	return realFiles{name, func(t *testing.T, at string) (string, string, []string) {
		loop := loopOf(t, 64<<20)
		device := make(t, "/dev/"+loop, fmt.Sprintf("plumbline%d", os.Getpid()))
		if err := rig.MountExt4(t, device, at); err != nil {
			t.Fatal(err)
		}
		node, err := filepath.EvalSymlinks(device)
		if err != nil {
			t.Fatal(err)
		}
		return at, filepath.Base(node), []string{loop}
	}}
}

// kernelsFiles are those file systems that this machine's kernel has.
func kernelsFiles(t *testing.T) []realFiles {
	plain := func(size int64, mount func(rig.T, string, string) error) func(*testing.T, string) (string, string, []string) {
		return func(t *testing.T, at string) (string, string, []string) {
			loop := loopOf(t, size)
			if err := mount(t, "/dev/"+loop, at); err != nil {
				t.Fatal(err)
			}
			return at, loop, []string{loop}
		}
	}
	ext4 := func(t rig.T, device, at string) error { return rig.MountExt4(t, device, at) }
	btrfs := func(t rig.T, device, at string) error { return rig.MountBtrfs(t, at, device) }
	all := []realFiles{{"ext4", plain(64<<20, ext4)}}
	if kernelHas(t, "/proc/filesystems", "xfs", "xfs") {
		all = append(all, realFiles{"xfs", plain(320<<20, rig.MountXFS)})
	}
	if kernelHas(t, "/proc/filesystems", "btrfs", "btrfs") {
		all = append(all, realFiles{"btrfs", plain(128<<20, btrfs)},
			realFiles{"a subvolume of btrfs", func(t *testing.T, at string) (string, string, []string) {
				_, loop, below := plain(128<<20, btrfs)(t, at)
				must(t, "btrfs", "subvolume", "create", at+"/volume")
				return at + "/volume", loop, below
			}},
			realFiles{"btrfs on two disks", func(t *testing.T, at string) (string, string, []string) {
				one, two := loopOf(t, 128<<20), loopOf(t, 128<<20)
				if err := rig.MountBtrfs(t, at, "/dev/"+one, "/dev/"+two); err != nil {
					t.Fatal(err)
				}
				both := []string{one, two}
				slices.Sort(both)
				return at, one, both
			}},
			realFiles{"a loop device on btrfs", func(t *testing.T, at string) (string, string, []string) {
				under := t.TempDir()
				_, loop, _ := plain(256<<20, btrfs)(t, under)
				file := filepath.Join(under, "disk")
				if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 64<<20)); err != nil {
					t.Fatal(err)
				}
				device, err := rig.AttachLoop(t, file)
				if err == nil {
					err = rig.MountExt4(t, device, at)
				}
				if err != nil {
					t.Fatal(err)
				}
				return at, filepath.Base(device), []string{loop}
			}})
	}
	if kernelHas(t, "/proc/filesystems", "overlay", "overlay") {
		all = append(all, realFiles{"overlay", func(t *testing.T, at string) (string, string, []string) {
			layers := t.TempDir()
			if _, _, below := plain(64<<20, ext4)(t, layers); len(below) != 1 {
				t.Fatal("no disk below the overlay")
			}
			for _, folder := range []string{"lower", "upper", "work"} {
				if err := os.Mkdir(filepath.Join(layers, folder), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", layers)
			if err := unix.Mount("overlay", at, "overlay", 0, options); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { unix.Unmount(at, unix.MNT_DETACH) })
			return at, "", nil
		}})
	}
	if kernelHas(t, "/proc/devices", "device-mapper", "dm_mod") {
		all = append(all,
			mapped("LVM", func(t *testing.T, loop, name string) string {
				must(t, "vgcreate", "-qq", name, loop)
				undone(t, "vgremove", "-qq", "-f", name)
				must(t, "lvcreate", "-qq", "-y", "-Zn", "-Wn", "-l", "100%FREE", "-n", "lv", name)
				return "/dev/" + name + "/lv"
			}),
			mapped("a path of multipath", func(t *testing.T, loop, name string) string {
				// As multipath makes it, by one path: the table's target is the plain one where the kernel lacks dm-multipath.
				must(t, "dmsetup", "create", name, "--uuid", "mpath-"+name, "--table", "0 131072 linear "+loop+" 0")
				undone(t, "dmsetup", "remove", name)
				return "/dev/mapper/" + name
			}))
		if kernelHas(t, "/proc/crypto", "xts(aes)", "dm_crypt") || kernelHas(t, "/proc/crypto", "aes", "dm_crypt") {
			all = append(all, mapped("LUKS", func(t *testing.T, loop, name string) string {
				key := filepath.Join(t.TempDir(), "key")
				if err := os.WriteFile(key, []byte("no secret"), 0o600); err != nil {
					t.Fatal(err)
				}
				must(t, "cryptsetup", "-q", "luksFormat", "--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", loop, key)
				must(t, "cryptsetup", "open", "--key-file", key, loop, name)
				undone(t, "cryptsetup", "close", name)
				return "/dev/mapper/" + name
			}))
		}
	}
	return all
}

// On each file system that the kernel has, the agent and the exporters find the disk of a volume, of a database
// server's files on it and of a replica's folder: the answers are the kernel's own, and what two of its tables call the
// same thing need not agree.
func TestRealFileSystems(t *testing.T) {
	testkit.NeedRoot(t)
	for _, files := range kernelsFiles(t) {
		t.Run(files.name, func(t *testing.T) {
			at := t.TempDir()
			folder, want, below := files.mount(t, at)
			data, wal, space := filepath.Join(folder, "pg"), filepath.Join(folder, "wal"), filepath.Join(folder, "space")
			if err := errors.Join(os.MkdirAll(filepath.Join(data, "pg_tblspc"), 0o755), os.Mkdir(wal, 0o755), os.Mkdir(space, 0o755),
				os.WriteFile(filepath.Join(data, "PG_VERSION"), []byte("15\n"), 0o644),
				os.Symlink(wal, filepath.Join(data, "pg_wal")), os.Symlink(space, filepath.Join(data, "pg_tblspc", "16384"))); err != nil {
				t.Fatal(err)
			}
			identities := filepath.Join(t.TempDir(), "volumes.yaml")
			text := fmt.Sprintf("volumes: [{volume: data, directory: %s}, {volume: wal, directory: %s}, {volume: space, directory: %s}]", data, wal, space)
			if err := os.WriteFile(identities, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			node := volume.NewNode("/proc", "/sys", volume.NewFile(identities))
			volumes, err := node.Find()
			var disks, bottoms []string
			for _, v := range volumes {
				disks, bottoms = append(disks, v.Disk), append(bottoms, v.Below...)
			}
			slices.Sort(bottoms)
			wantVolumes := []string{want, want, want}
			if want == "" {
				wantVolumes = nil
			}
			if err != nil || !slices.Equal(disks, wantVolumes) {
				t.Errorf("the volumes are on %q, %v; want %q", disks, err, want)
			}
			for _, loop := range below {
				real, err := (&disk.Finder{ProcFS: "/proc", SysFS: "/sys", RootFS: "/"}).Wait(backingOf(t, loop))
				if err != nil {
					continue // this machine's temporary files are on no disk
				}
				if !slices.Contains(bottoms, real) {
					t.Errorf("below the volumes are %q, not %s, where the file of %s is", bottoms, real, loop)
				}
			}
			finder := &disk.Finder{ProcFS: "/proc", SysFS: "/sys", RootFS: "/"}
			if got, err := finder.Wait(data); got != want || (err == nil) != (want != "") {
				t.Errorf("an exporter finds the disk %q, %v; want %q", got, err, want)
			}
			o := Options{Log: slog.New(slog.DiscardHandler), Node: "here", ProcFS: "/proc", SysFS: "/sys"}
			calls := o.calls()
			// In the host's mount namespace and, as in a container, in one of its own, where each mount has another number.
			for where, flags := range map[string]uintptr{"the host's": 0, "its own": syscall.CLONE_NEWNS} {
				pid := postgresIn(t, data, flags)
				places := map[string]string{}
				s := scannedServer(t, calls, pid)
				found, err := placesOf(o, calls, s)
				for _, p := range found {
					places[p.purpose] = p.device + " " + p.volumeOf(volumes)
				}
				wantPlaces := map[string]string{"data": want + " data", "wal": want + " wal", "tablespace": want + " space"}
				if want == "" {
					wantPlaces = map[string]string{}
				}
				if err != nil || fmt.Sprint(places) != fmt.Sprint(wantPlaces) {
					t.Errorf("in %s namespace the server's files are on %v, %v; want %v", where, places, err, wantPlaces)
				}
				f := &replicaFollower{options: o, disks: calls}
				got, err := f.place(&followedProcess{pid: pid, replicaProcess: replicaProcess{Role: replica.Replica, Directory: data}}, foreign.Owner{})
				f.byPID = map[int]*followedProcess{pid: {pid: pid, replicaProcess: replicaProcess{Role: replica.Replica}, device: got, placed: true}}
				if n := f.withoutDevice(); (n == 1) != (want == "") {
					t.Errorf("%d replicas are counted whose disk is not known, and it is %q", n, want)
				}
				if got != want || err != nil {
					t.Errorf("in %s namespace a replica's folder is on %q, %v; want %q", where, got, err, want)
				}
			}
		})
	}
}

// backingOf is the file of a loop device.
func backingOf(t *testing.T, loop string) string {
	t.Helper()
	text, err := os.ReadFile("/sys/block/" + loop + "/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(text)))
}

// postgresIn starts a process called postgres in a folder, which does nothing, until the test ends; flags are the
// namespaces of its own.
func postgresIn(t *testing.T, data string, flags uintptr) (pid int) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "postgres")
	text, err := os.ReadFile(testkit.Tool(t, "sleep"))
	if err == nil {
		err = os.WriteFile(program, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(program, "600")
	cmd.Dir = data
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Cloneflags: flags}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return cmd.Process.Pid
}

// scannedServer is what a scan finds of a server's process.
func scannedServer(t *testing.T, calls *foreign.Calls, pid int) (s server.Server) {
	t.Helper()
	scanner := server.NewScanner("/proc", calls)
	testkit.Eventually(t, testkit.Patience, func() error {
		c, ok := scanner.Candidate(pid)
		if !ok {
			return fmt.Errorf("process %d is no candidate yet", pid)
		}
		found, err := scanner.Looker()(c)
		if err != nil || found == nil {
			return fmt.Errorf("process %d is no server: %w", pid, err)
		}
		s = *found
		return nil
	})
	return s
}

// A loop device whose file is in a mount namespace that is no more is above the disk that the file is on: its path
// means nothing to anybody else.
func TestLoopOfAnotherNamespace(t *testing.T) {
	testkit.NeedRoot(t)
	outer, at := loopOf(t, 128<<20), t.TempDir()
	must(t, "mkfs.ext4", "-q", "/dev/"+outer)
	script := `mount "$0" "$1" && truncate -s 32M "$1/disk" && losetup --find --show "$1/disk"`
	inner := must(t, "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "/dev/"+outer, at)
	undone(t, "losetup", "--detach", inner)
	tables, err := volume.ReadTables("/proc", pod.NewWalk("/proc"))
	if err != nil {
		t.Fatal(err)
	}
	devices := volume.NewDevices("/proc", "/sys")
	want := devices.Below(outer, tables)
	if got := devices.Below(filepath.Base(inner), tables); len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("below %s are %q, below %s, which its file is on, %q", inner, got, outer, want)
	}
}
