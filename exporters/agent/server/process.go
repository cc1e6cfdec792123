package server

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/volume"
)

const (
	// maxStat bounds /proc/PID/stat and /proc/PID/status.
	maxStat = 16 << 10
	// maxArguments is how much of a command line is read.
	maxArguments = 64 << 10
	// maxCgroup is how much of /proc/PID/cgroup is read, a line for each hierarchy.
	maxCgroup = 64 << 10
)

// process is a folder of procfs.
type process struct {
	root, dir string
	pid       int
	// user is its effective user.
	user uint32
	// args is its command line, or nil if that is not known.
	args []string
	// mounts are those that its files were seen through, by the kernel's numbers; nil if they are not kept.
	mounts map[uint64]volume.Mount
}

func newProcess(root string, pid int) process {
	return process{root: root, pid: pid, dir: filepath.Join(root, strconv.Itoa(pid))}
}

type stat struct {
	comm       string
	parent     int
	startTicks uint64
}

// stat reads /proc/PID/stat, see proc(5).
func (p process) stat() (stat, error) {
	text, err := untrusted.ReadProc(filepath.Join(p.dir, "stat"), maxStat)
	if err != nil {
		return stat{}, ended(err)
	}
	// The name is in parentheses and may hold any byte, so look for the last one.
	open, closing := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || closing < open {
		return stat{}, fmt.Errorf("%s/stat has no name in parentheses", p.dir)
	}
	fields := strings.Fields(string(text[closing+1:]))
	const parent, start = 1, 19 // counted after the name
	if len(fields) <= start {
		return stat{}, fmt.Errorf("%s/stat has only %d fields", p.dir, len(fields)+2)
	}
	ticks, err := strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("%s/stat: start time: %w", p.dir, err)
	}
	number, err := strconv.Atoi(fields[parent])
	if err != nil {
		return stat{}, fmt.Errorf("%s/stat: parent: %w", p.dir, err)
	}
	return stat{comm: string(text[open+1 : closing]), parent: number, startTicks: ticks}, nil
}

// effectiveUser reads the user that the process acts as, see proc(5).
func (p process) effectiveUser() (uint32, error) {
	text, err := untrusted.ReadProc(filepath.Join(p.dir, "status"), maxStat)
	if err != nil {
		return 0, ended(err)
	}
	for line := range strings.Lines(string(text)) {
		const effective = 1
		users, ok := strings.CutPrefix(line, "Uid:")
		if fields := strings.Fields(users); ok && len(fields) > effective {
			n, err := strconv.ParseUint(fields[effective], 10, 32)
			return uint32(n), err
		}
	}
	return 0, fmt.Errorf("%s/status has no user", p.dir)
}

// group returns a number for the cgroup that the process cannot leave, as pod.Owner finds it: an owner that makes
// cgroups within its own is still the same one. It is empty if all its cgroups are roots, which in a cgroup namespace
// of its own the agent's own cgroup is, or if they cannot be read. That reads neither the process's memory nor its
// files, and so does not hang with those; it may only wait for the kernel's lock on cgroups.
func (p process) group() string {
	text, err := untrusted.ReadProc(filepath.Join(p.dir, "cgroup"), maxCgroup)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(strings.TrimSuffix(line, "\n"), ":/") {
			sum := sha256.Sum256([]byte(pod.Owner(p.root, p.pid)))
			return hex.EncodeToString(sum[:8])
		}
	}
	return ""
}

// arguments returns the command line, up to maxArguments.
func (p process) arguments() ([]string, error) {
	text, err := untrusted.ReadProc(filepath.Join(p.dir, "cmdline"), maxArguments)
	if err != nil {
		return nil, ended(err)
	}
	text = bytes.TrimRight(text, "\x00")
	if len(text) == 0 {
		return nil, nil
	}
	return strings.Split(string(text), "\x00"), nil
}

// ended replaces the error of reading a process that has ended by a plain one.
func ended(err error) error {
	if errors.Is(err, syscall.ESRCH) {
		return errEnded
	}
	return err
}

// gone reports whether an error only means that the process has ended.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, errEnded)
}

// unlessGone returns an error, but nil if it only means that the process has ended.
func unlessGone(err error) error {
	if gone(err) {
		return nil
	}
	return err
}

var errEnded = errors.New("process has ended")
