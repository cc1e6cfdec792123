package collector

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
)

// replicaProcess is an engine or a replica of a volume, as its command line tells.
type replicaProcess struct {
	// Backend is the storage engine's name, as in the label backend.
	Backend string
	Role    replica.Role
	Volume  string
	// Instance is the name the storage engine gives to this engine or replica; may be empty.
	Instance string
	// Directory is where a replica keeps its data, as the process sees it.
	Directory string
	// Host and Port are the control address a replica listens on; Host may be empty.
	Host string
	Port uint16
	// Unix is set if engine and replica talk over a unix socket (data locality strict-local).
	Unix bool
	// Replicas are the addresses an engine was started with; others may follow later.
	Replicas []string
	// UnseenFrontend is set if the engine's user does not speak the replicas' wire.
	UnseenFrontend bool
}

// dataconnSwitches are the options of longhorn-engine 1.8 and jiva 3.6 without a value.
var dataconnSwitches = []string{
	"debug", "upgrade", "disableRevCounter", "salvageRequested", "sync-agent", "logtofile",
	"unmap-mark-snap-chain-removed", "unmap-mark-disk-chain-removed",
}

// dataconnProcess recognises the engines ("controller") and replicas of Longhorn V1 and
// Jiva by their command lines; nil means that this is neither. hostname is asked only for a
// Jiva replica, whose command line does not name the volume.
func dataconnProcess(args []string, hostname func() string) (*replicaProcess, error) {
	if len(args) == 0 {
		return nil, nil
	}
	name := filepath.Base(args[0])
	if !strings.HasPrefix(name, "longhorn") && !strings.HasPrefix(name, "jiva") {
		return nil, nil
	}
	options, words := splitArguments(args[1:])
	if len(words) == 0 {
		return nil, nil
	}
	last := func(option string) string {
		if v := options[option]; len(v) > 0 {
			return v[len(v)-1]
		}
		return ""
	}
	_, jiva := options["frontendIP"]
	p := &replicaProcess{
		Backend: "longhorn-v1",
		Volume:  last("volume-name"),
		Unix:    last("data-server-protocol") == "unix",
	}
	if jiva || strings.HasPrefix(name, "jiva") || last("frontend") == "gotgt" {
		p.Backend = "jiva"
	}
	switch words[0] {
	case "controller":
		p.Role = replica.Engine
		p.Instance = last("engine-instance-name")
		if len(words) < 2 {
			return nil, fmt.Errorf("engine without a volume name on its command line")
		}
		p.Volume = words[1]
		for _, r := range options["replica"] {
			p.Replicas = append(p.Replicas, strings.TrimPrefix(r, "tcp://"))
		}
		f := last("frontend")
		p.UnseenFrontend = f != "socket" && !strings.HasPrefix(f, "tgt-")
	case "replica":
		p.Role = replica.Replica
		p.Instance = last("replica-instance-name")
		if len(words) < 2 {
			return nil, fmt.Errorf("replica without a directory on its command line")
		}
		p.Directory = words[1]
		listen := last("listen")
		if listen == "" {
			listen = "localhost:9502" // both programs' default port
		}
		host, port, err := net.SplitHostPort(listen)
		if err != nil {
			return nil, fmt.Errorf("replica's --listen: %w", err)
		}
		number, err := strconv.ParseUint(port, 10, 16)
		if err != nil || number == 65535 {
			return nil, fmt.Errorf("replica's --listen %s: no port with another one after it", listen)
		}
		p.Host, p.Port = host, uint16(number)
		if p.Volume == "" {
			p.Volume = jivaVolume(hostname())
		}
	default:
		return nil, nil // sync agents and short commands
	}
	if p.Volume == "" {
		return nil, fmt.Errorf("no volume name on the command line")
	}
	return p, nil
}

// splitArguments tells options from words, wherever they stand: urfave/cli, which both
// programs use, lets them mix.
func splitArguments(args []string) (options map[string][]string, words []string) {
	options = map[string][]string{}
	for i := 0; i < len(args); i++ {
		name := strings.TrimLeft(args[i], "-")
		switch {
		case !strings.HasPrefix(args[i], "-"):
			words = append(words, args[i])
			continue
		case strings.Contains(name, "="):
			name, value, _ := strings.Cut(name, "=")
			options[name] = append(options[name], value)
			continue
		case slices.Contains(dataconnSwitches, name) || i+1 == len(args):
			options[name] = append(options[name], "true")
			continue
		}
		i++
		options[name] = append(options[name], args[i])
	}
	return options, words
}

// jivaVolume takes the volume's name from the host name of a Jiva replica's pod,
// VOLUME-jiva-rep-N of a StatefulSet; any other host name is the best name there is.
func jivaVolume(hostname string) string {
	volume, _, _ := strings.Cut(hostname, "-jiva-rep-")
	return volume
}

// readReplicaProcess reads one process of procfs; nil means that it is not of this wire or
// has ended. start tells a process from a later one of the same number.
func readReplicaProcess(procfs string, pid int, recognise func([]string, func() string) (*replicaProcess, error)) (p *replicaProcess, start uint64, err error) {
	dir := filepath.Join(procfs, strconv.Itoa(pid))
	start, err = startTicks(dir)
	if err != nil {
		return nil, 0, nil
	}
	text, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	if err != nil || len(text) == 0 {
		return nil, start, nil
	}
	args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	p, err = recognise(args, func() string {
		name, _ := os.ReadFile(filepath.Join(dir, "root", "etc", "hostname"))
		return strings.TrimSpace(string(name))
	})
	if err != nil {
		return nil, start, fmt.Errorf("process %d: %w", pid, err)
	}
	return p, start, nil
}

// startTicks returns field 22 of /proc/PID/stat. The second field, the program's name in
// parentheses, may hold anything.
func startTicks(dir string) (uint64, error) {
	text, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, err
	}
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0, fmt.Errorf("%s/stat has %d fields", dir, len(fields)+2)
	}
	return strconv.ParseUint(string(fields[19]), 10, 64)
}

// openSockets returns the inode numbers of a process's sockets.
func openSockets(procfs string, pid int) (map[uint64]bool, error) {
	dir := filepath.Join(procfs, strconv.Itoa(pid), "fd")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	open := map[uint64]bool{}
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // closed meanwhile
		}
		if err != nil {
			return nil, err
		}
		number, ok := strings.CutPrefix(target, "socket:[")
		if !ok {
			continue
		}
		inode, err := strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
		if err == nil {
			open[inode] = true
		}
	}
	return open, nil
}
