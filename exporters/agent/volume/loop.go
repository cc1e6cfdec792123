package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
)

// maxLoops bounds the loop devices that are remembered.
const maxLoops = 4096

// loopFile is the file of a loop device: what its file system calls its device and the file's number there.
type loopFile struct{ Device, Inode uint64 }

// loops reads which files loop devices have. One whose file system does not answer is waited for as briefly as a folder
// is; what it answered holds as long as the file is attached.
type loops struct {
	calls *untrusted.Calls
	// status reads a device's file from the kernel; number is the device's own.
	status func(procfs, device, number string) (loopFile, error)

	mu    sync.Mutex
	known map[string]loopFile // by device, its number (diskseq) and path
}

func newLoops() *loops {
	return &loops{calls: untrusted.NewCalls(folderTimeout, folderHanging), status: loopStatus, known: map[string]loopFile{}}
}

// lookUp returns the file of a loop device.
func (l *loops) lookUp(d Devices, device, path string) (loopFile, error) {
	folder := filepath.Join(d.sysfs, "class", "block", disk.Entry(device))
	sequence, _ := os.ReadFile(filepath.Join(folder, "diskseq"))
	number, err := os.ReadFile(filepath.Join(folder, "dev"))
	if err != nil {
		return loopFile{}, err
	}
	key := device + "\n" + string(sequence) + "\n" + path
	l.mu.Lock()
	found, known := l.known[key]
	l.mu.Unlock()
	if known {
		return found, nil
	}
	err = l.calls.DoFor(device, "loop device", func() error {
		found, err := l.status(d.procfs, device, strings.TrimSpace(string(number)))
		if err == nil {
			l.mu.Lock()
			defer l.mu.Unlock()
			if len(l.known) >= maxLoops {
				l.known = map[string]loopFile{}
			}
			l.known[key] = found
		}
		return err
	})
	if err != nil {
		return loopFile{}, fmt.Errorf("loop device %s: %w", device, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[key], nil
}

// loopStatus reads from the kernel the file of a loop device in the host's /dev that has this number.
func loopStatus(procfs, device, number string) (loopFile, error) {
	node, err := untrusted.OpenDisk(procfs, device, number)
	if err != nil {
		return loopFile{}, err
	}
	defer node.Close()
	info, err := unix.IoctlLoopGetStatus64(int(node.Fd()))
	if err != nil {
		return loopFile{}, err
	}
	return loopFile{info.Device, info.Inode}, nil
}

// mountOf returns the host's mount that a loop device's file is seen through by its path, if that is the file. Without
// leave to look into PID 1's root it is the agent's own.
func (l *loops) mountOf(d Devices, file loopFile, path string) (Mount, error) {
	var m Mount
	err := l.calls.DoFor(path, "file of a loop device", func() error {
		pid := 1
		root, err := untrusted.Root(d.procfs, pid)
		if errors.Is(err, os.ErrPermission) {
			pid = os.Getpid()
			root, err = untrusted.Root("/proc", pid)
		}
		if err != nil {
			return err
		}
		defer root.Close()
		there, err := root.File(path, untrusted.InRoot)
		if err != nil {
			return err
		}
		if there.Dev != file.Device || there.Ino != file.Inode {
			return errors.New("another file has its path")
		}
		found, err := MountOf(d.procfs, pid, there.Mount)
		l.mu.Lock()
		defer l.mu.Unlock()
		m = found
		return err
	})
	if err != nil {
		return Mount{}, fmt.Errorf("%s: %w", untrusted.Path(path), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return m, nil
}
