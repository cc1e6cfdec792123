package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// demos shows the demo on kernels, in guests that are slow: small unless the user's own variables override it.
type demos struct {
	guest   guest // what the guests have in common
	dir     string
	folder  string // where each kernel's console, page and exit code are kept
	diskMiB int
}

// small is a lab that an emulated machine of a tenth of a CPU's speed carries. What the caller's environment has comes
// after it.
var small = []string{"LAB_CLASSES=local longhorn-r1", "LAB_RATE=2", "LAB_CLIENTS=2", "LAB_CANARY_RATE=1", "LAB_SCALE=1", "LAB_INTERVAL=15s", "LAB_WAIT=40m", "DURATION=150s"}

// inGuest does what a booted Debian has done, gives the lab the guest's disk, and becomes the demo. The modules are
// those that a machine with udev has or loads by itself.
const inGuest = `set -eu
for m in ext4 loop fuse; do modprobe "$m"; done
case " $LAB_CLASSES " in *" nvme-"*) modprobe -a nvme-tcp nvmet-tcp dm-raid dm-delay veth ;; esac
mkfs.ext4 -q /dev/vda
mkdir -p /mnt/lab
mount /dev/vda /mnt/lab
exec build/bin/plumbline-lab --directory=/mnt/lab/state demo --page=/run/host/demo.html --every=30s`

// run shows the demo on each kernel of the series, and returns on how many the demo did not complete.
func (d demos) run(ctx context.Context, series []string) (failed int, err error) {
	chosen, folders, root, err := prepare(ctx, d.guest.arch, series)
	if err != nil {
		return 0, err
	}
	programs, err := os.MkdirTemp("", "plumbline-kernels-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(programs)
	if d.guest.init, err = buildProgram(ctx, programs, d.guest.arch, "init"); err != nil {
		return 0, err
	}
	d.guest.root, d.guest.dir, d.guest.command = root, d.dir, []string{"sh", "-c", inGuest}
	d.guest.env = settings(os.Environ())
	for i, k := range chosen {
		d.guest.folder, d.guest.release = folders[i], k.release
		code, err := d.one(ctx, k)
		if ctx.Err() != nil {
			return failed, ctx.Err()
		}
		if err != nil || code != 0 {
			failed++
			logf("%s: the demo did not come to its end (exit code %d, %v); console and page are in %s", k.release, code, err, d.guest.share)
		}
	}
	return failed, nil
}

// settings are the lab's, the caller's in place of the small ones.
func settings(environment []string) []string {
	values := map[string]string{}
	for _, e := range slices.Concat(small, environment) {
		name, value, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "LAB_") || name == "DURATION" || name == "BREAK" || name == "WIDE" {
			values[name] = value
		}
	}
	// Each once: of two the lab would take one, and a shell the other.
	var all []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, name+"="+values[name])
	}
	return all
}

func (d *demos) one(ctx context.Context, k kernel) (int, error) {
	leave, err := d.guest.settle(filepath.Join(d.folder, k.release), d.diskMiB, os.Stdout)
	if err != nil {
		return 0, err
	}
	defer leave()
	logf("booting %s for a demo", k.release)
	began := time.Now()
	code, err := boot(ctx, d.guest)
	if err == nil && code == 0 {
		if _, err = os.Stat(filepath.Join(d.guest.share, "demo.html")); err != nil {
			err = fmt.Errorf("it wrote no page: %w", err)
		}
	}
	logf("%s: %.0f s", k.release, time.Since(began).Seconds())
	return code, err
}
