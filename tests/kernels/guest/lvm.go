package main

import (
	"os"
	"path/filepath"

	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

// group is the volume group that the disk becomes.
const group = "plumbline"

// lvmSettings are for a machine without udev, and without what checks a thin pool's metadata.
const lvmSettings = `activation { udev_sync=0 udev_rules=0 monitoring=0 } devices { obtain_device_list_from_udev=0 use_devicesfile=0 }
	global { use_lvmpolld=0 thin_check_executable="" } backup { backup=0 archive=0 }`

// measureLVM makes the disk a volume group, as LVM LocalPV has on a node, and compares blockio with what is made on a
// linear volume and on a thin one. Both are devices of the device mapper, which have no request queue of their own.
func (b *blocks) measureLVM(t *rig.Scope, out *outcome.Outcome) {
	if b == nil {
		return
	}
	logf("logical volumes")
	t.Check(call("modprobe", "-a", "dm-mod", "dm-thin-pool"))
	lvm := func(command ...string) { t.Check(call(append(command, "--config="+lvmSettings)...)) }
	lvm("pvcreate", "--quiet", "--force", "--force", "--yes", disk)
	lvm("vgcreate", "--quiet", group, disk)
	t.Cleanup(func() {
		_ = call("vgremove", "--quiet", "--force", "--force", "--yes", group, "--config="+lvmSettings)
	})
	for _, v := range []struct {
		kind string
		make []string
	}{
		{"linear", []string{"--size=64M", "--zero=n"}},
		{"thin", []string{"--virtualsize=64M", "--thinpool=pool"}},
	} {
		if v.kind == "thin" {
			lvm("lvcreate", "--quiet", "--yes", "--type=thin-pool", "--size=256M", "--name=pool", group)
		}
		lvm(append([]string{"lvcreate", "--quiet", "--yes", "--wipesignatures=n", "--name=" + v.kind, group}, v.make...)...)
		path := filepath.Join("/dev", group, v.kind)
		rig.Eventually(t, rig.DefaultTimeout, func() error { _, err := os.Stat(path); return err })
		out.Disk = append(out.Disk, b.alone(t, path, "LVM, "+v.kind)...)
	}
}
