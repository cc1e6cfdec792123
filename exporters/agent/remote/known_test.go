package remote

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// Of one of the machine's own disks its number is read once, and again if another disk comes in its place, also by the
// same name.
func TestKnownDisks(t *testing.T) {
	const scsi, nvme = "devices/pci0000:00/ata1/host0/target0:0:0/0:0:0:0/block/sda", "class/nvme/nvme0/nvme0n1"
	for name, wire := range map[string]struct {
		read           func(string, *Known) (Paths, error)
		disk, identity string // whose number is the kernel's
	}{
		"iscsi": {ReadISCSI, scsi, "block/sda"},
		"nvme":  {ReadNVMe, nvme, nvme},
	} {
		t.Run(name, func(t *testing.T) {
			sysfs := tree(t, map[string]string{
				scsi + "/diskseq": "9\n", nvme + "/diskseq": "9\n", "class/nvme/nvme0/transport": "pcie\n", "devices/virtual/block/dm-0/size": "1\n",
			})
			link(t, sysfs, "block/sda", "../"+scsi)
			link(t, sysfs, "block/dm-0", "../devices/virtual/block/dm-0")
			var known Known
			is := func(what string, want ...uint64) {
				t.Helper()
				numbers := map[uint64]bool{}
				for _, n := range want {
					numbers[n] = true
				}
				if got, err := wire.read(sysfs, &known); err != nil || !maps.Equal(got.Local, numbers) || len(got.Paths) > 0 {
					t.Errorf("%s: %+v, %v; want %v", what, got, err, want)
				}
			}
			is("at first", 9)
			sequence := filepath.Join(sysfs, wire.disk, "diskseq")
			if err := os.WriteFile(sequence, []byte("unread\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			is("as long as it lives", 9)
			is("as long as it lives, yet again", 9)
			// While both are there they have two numbers, as the kernel's always have.
			identity := filepath.Join(sysfs, wire.identity)
			old := identity + "-old"
			if err := os.Rename(identity, old); err != nil {
				t.Fatal(err)
			}
			if wire.disk == wire.identity {
				if err := os.Mkdir(identity, 0o755); err != nil {
					t.Fatal(err)
				}
			} else {
				link(t, sysfs, wire.identity, "../"+wire.disk)
			}
			if err := errors.Join(os.RemoveAll(old), os.WriteFile(sequence, []byte("12\n"), 0o644)); err != nil {
				t.Fatal(err)
			}
			is("another one of its name", 12)
			if err := os.RemoveAll(identity); err != nil {
				t.Fatal(err)
			}
			is("gone")
			if n, want := len(known.disks), map[string]int{"iscsi": 1, "nvme": 0}[name]; n != want { // dm-0
				t.Errorf("%d disks are remembered, want %d", n, want)
			}
		})
	}
}

// A disk whose medium can be changed gets another number with a new one, and stays where it is.
func TestRemovableDisk(t *testing.T) {
	const disk = "devices/pci0000:00/usb1/host0/target0:0:0/0:0:0:0/block/sr0"
	sysfs := tree(t, map[string]string{disk + "/diskseq": "9\n", disk + "/removable": "1\n"})
	link(t, sysfs, "block/sr0", "../"+disk)
	var known Known
	for _, number := range []uint64{9, 10} {
		if err := os.WriteFile(filepath.Join(sysfs, disk, "diskseq"), fmt.Appendln(nil, number), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, err := ReadISCSI(sysfs, &known); err != nil || !maps.Equal(got.Local, map[uint64]bool{number: true}) {
			t.Errorf("%+v, %v; want %d", got, err, number)
		}
	}
}
