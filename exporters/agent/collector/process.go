package collector

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// PIDNamespace returns the number of the PID namespace whose PIDs a procfs shows. It must be the agent's own: the
// kernel walks only the tasks of the reader's namespace.
func PIDNamespace(procfs string) (uint32, error) {
	status, err := os.ReadFile(filepath.Join(procfs, "self", "status"))
	if err != nil {
		return 0, fmt.Errorf("the agent is not among the processes of %s: %w", procfs, err)
	}
	for line := range strings.Lines(string(status)) {
		// One PID for each namespace from the procfs's own down to the agent's.
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok && len(strings.Fields(pids)) != 1 {
			return 0, fmt.Errorf("%s shows the processes of another PID namespace than the agent's, which cannot be followed from there; "+
				"run the agent in that one (hostPID: true in Kubernetes)", procfs)
		}
	}
	info, err := os.Stat(filepath.Join(procfs, "self", "ns", "pid"))
	if err != nil {
		return 0, fmt.Errorf("the agent's PID namespace: %w", err)
	}
	return uint32(info.Sys().(*syscall.Stat_t).Ino), nil
}

// ProcessStat returns the name, the parent and field 22, the start, of /proc/PID/stat. The second field, the
// name in parentheses, may hold anything.
func ProcessStat(dir string) (name string, parent int, start uint64, err error) {
	text, err := untrusted.ReadProc(filepath.Join(dir, "stat"), 4096)
	if err != nil {
		return "", 0, 0, err
	}
	open, closing := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || closing < open {
		return "", 0, 0, fmt.Errorf("%s/stat names no program", dir)
	}
	fields := bytes.Fields(text[closing+1:])
	if len(fields) < 20 {
		return "", 0, 0, fmt.Errorf("%s/stat has %d fields", dir, len(fields)+2)
	}
	parent, err = strconv.Atoi(string(fields[1]))
	start, startErr := strconv.ParseUint(string(fields[19]), 10, 64)
	return string(text[open+1 : closing]), parent, start, errors.Join(err, startErr)
}

// OwnedByRoot reports whether all user ids of a process are root's; a set-user-ID program that a user runs still has
// the user's.
func OwnedByRoot(dir string) (bool, error) {
	text, err := untrusted.ReadProc(filepath.Join(dir, "status"), 8192)
	if err != nil {
		return false, err
	}
	for line := range bytes.Lines(text) {
		if ids, ok := bytes.CutPrefix(line, []byte("Uid:")); ok {
			fields := bytes.Fields(ids)
			return len(fields) == 4 && !slices.ContainsFunc(fields, func(id []byte) bool { return string(id) != "0" }), nil
		}
	}
	return false, fmt.Errorf("%s/status has no user", dir)
}
