package collectortest

import (
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// LoopOf makes a loop device of an empty file.
func LoopOf(t *testing.T, size int64) string {
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

// Must runs a command.
func Must(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := osexec.Command(testkit.Tool(t, name), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// Undone runs a command when the test ends.
func Undone(t *testing.T, name string, args ...string) {
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

// FileSystem is a file system of the kernel's own: mount mounts it and returns the folder for files, the disk that it is
// on, empty if it is on none, and the disks below.
type FileSystem struct {
	Name  string
	Mount func(t *testing.T, at string) (folder, disk string, below []string)
}

// mapped is a file system on a device of the device mapper's, which make makes of a loop device and returns as it is in
// /dev.
func mapped(name string, make func(t *testing.T, loop, name string) (device string)) FileSystem {
	return FileSystem{name, func(t *testing.T, at string) (string, string, []string) {
		loop := LoopOf(t, 64<<20)
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

// FileSystems are those that this machine's kernel has.
func FileSystems(t *testing.T) []FileSystem {
	plain := func(size int64, mount func(rig.T, string, string) error) func(*testing.T, string) (string, string, []string) {
		return func(t *testing.T, at string) (string, string, []string) {
			loop := LoopOf(t, size)
			if err := mount(t, "/dev/"+loop, at); err != nil {
				t.Fatal(err)
			}
			return at, loop, []string{loop}
		}
	}
	ext4 := func(t rig.T, device, at string) error { return rig.MountExt4(t, device, at) }
	btrfs := func(t rig.T, device, at string) error { return rig.MountBtrfs(t, at, device) }
	all := []FileSystem{{"ext4", plain(64<<20, ext4)}}
	if kernelHas(t, "/proc/filesystems", "xfs", "xfs") {
		all = append(all, FileSystem{"xfs", plain(320<<20, rig.MountXFS)})
	}
	if kernelHas(t, "/proc/filesystems", "btrfs", "btrfs") {
		all = append(all, FileSystem{"btrfs", plain(128<<20, btrfs)},
			FileSystem{"a subvolume of btrfs", func(t *testing.T, at string) (string, string, []string) {
				_, loop, below := plain(128<<20, btrfs)(t, at)
				Must(t, "btrfs", "subvolume", "create", at+"/volume")
				return at + "/volume", loop, below
			}},
			FileSystem{"btrfs on two disks", func(t *testing.T, at string) (string, string, []string) {
				one, two := LoopOf(t, 128<<20), LoopOf(t, 128<<20)
				if err := rig.MountBtrfs(t, at, "/dev/"+one, "/dev/"+two); err != nil {
					t.Fatal(err)
				}
				both := []string{one, two}
				slices.Sort(both)
				return at, one, both
			}},
			FileSystem{"a loop device on btrfs", func(t *testing.T, at string) (string, string, []string) {
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
		all = append(all, FileSystem{"overlay", func(t *testing.T, at string) (string, string, []string) {
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
				Must(t, "vgcreate", "-qq", name, loop)
				Undone(t, "vgremove", "-qq", "-f", name)
				Must(t, "lvcreate", "-qq", "-y", "-Zn", "-Wn", "-l", "100%FREE", "-n", "lv", name)
				return "/dev/" + name + "/lv"
			}),
			mapped("a path of multipath", func(t *testing.T, loop, name string) string {
				// As multipath makes it, by one path: the table's target is the plain one where the kernel lacks dm-multipath.
				Must(t, "dmsetup", "create", name, "--uuid", "mpath-"+name, "--table", "0 131072 linear "+loop+" 0")
				Undone(t, "dmsetup", "remove", name)
				return "/dev/mapper/" + name
			}))
		if kernelHas(t, "/proc/crypto", "xts(aes)", "dm_crypt") || kernelHas(t, "/proc/crypto", "aes", "dm_crypt") {
			all = append(all, mapped("LUKS", func(t *testing.T, loop, name string) string {
				key := filepath.Join(t.TempDir(), "key")
				if err := os.WriteFile(key, []byte("no secret"), 0o600); err != nil {
					t.Fatal(err)
				}
				Must(t, "cryptsetup", "-q", "luksFormat", "--type", "luks2", "--pbkdf", "pbkdf2", "--pbkdf-force-iterations", "1000", loop, key)
				Must(t, "cryptsetup", "open", "--key-file", key, loop, name)
				Undone(t, "cryptsetup", "close", name)
				return "/dev/mapper/" + name
			}))
		}
	}
	return all
}

// IdleIn starts a process in a folder, called postgres, which does nothing, until the test ends; flags are the
// namespaces of its own.
func IdleIn(t *testing.T, data string, flags uintptr) (pid int) {
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
