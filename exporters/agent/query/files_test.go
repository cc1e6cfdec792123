package query

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/volume"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
	"github.com/plumbline/plumbline/tests/testkit"
)

// On each file system that the kernel has, the agent and the exporters find the disk of a volume, of a database
// server's files on it: the answers are the kernel's own, and what two of its tables call the
// same thing need not agree.
func TestRealFileSystems(t *testing.T) {
	testkit.NeedRoot(t)
	for _, files := range collectortest.FileSystems(t) {
		t.Run(files.Name, func(t *testing.T) {
			at := t.TempDir()
			folder, want, below := files.Mount(t, at)
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
			node := volume.NewNode("/proc", "/sys", volume.NewFile(identities, "here"))
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
			o := collectortest.Here()
			calls := o.SharedCalls()
			// In the host's mount namespace and, as in a container, in one of its own, where each mount has another number.
			for where, flags := range map[string]uintptr{"the host's": 0, "its own": syscall.CLONE_NEWNS} {
				pid := collectortest.IdleIn(t, data, flags)
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

// scannedServer is what a scan finds of a server's process.
func scannedServer(t *testing.T, calls *untrusted.Calls, pid int) (s server.Server) {
	t.Helper()
	scanner := server.NewScanner("/proc", calls)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		c, ok := scanner.Candidate(pid)
		if !ok {
			return fmt.Errorf("process %d is no candidate yet", pid)
		}
		found, err := scanner.ScanFunc()(c)
		if err != nil || found == nil {
			return fmt.Errorf("process %d is no server: %w", pid, err)
		}
		s = *found
		return nil
	})
	return s
}
