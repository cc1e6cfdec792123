package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// replicaProcess is an engine or a replica of a volume, or a replica's sync agent, by its command line.
type replicaProcess struct {
	// Backend is the storage backend's name, as in the label backend.
	Backend string
	Role    bpf.Role
	Volume  string
	// Instance is the name the storage backend gives to this engine or replica; may be empty.
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
	// UnseenFrontend is set if the engine's user does not use the replicas' wire.
	UnseenFrontend bool
	// SyncAgent is set of what moves a replica's data in a rebuild, which is that replica's child; Parent is its parent.
	SyncAgent bool
	Parent    int
}

// dataconnSwitches are the options of longhorn-engine 1.8 to 1.12 and jiva 3.6 without a value.
var dataconnSwitches = []string{
	"debug", "upgrade", "disableRevCounter", "salvageRequested", "sync-agent", "logtofile", "encrypted",
	"unmap-mark-snap-chain-removed", "unmap-mark-disk-chain-removed",
}

// dataconnProcess recognises the engines ("controller"), replicas and sync agents of Longhorn V1 and Jiva by their
// command lines; nil means that this is none. hostname is called only for a Jiva replica, whose command line does not
// name the volume.
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
		p.Role = bpf.Engine
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
		p.Role = bpf.Replica
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
		switch {
		case p.Volume != "":
		case p.Backend == "jiva":
			p.Volume = jivaVolume(hostname())
		default:
			p.Volume = directoryVolume(p.Directory)
		}
	case "sync-agent":
		return &replicaProcess{SyncAgent: true}, nil
	default:
		return nil, nil // short commands
	}
	if p.Volume == "" {
		return nil, fmt.Errorf("no volume name on the command line")
	}
	return p, nil
}

// splitArguments separates options from words, in any order: urfave/cli, which both programs use, lets them mix.
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

// longhornDirectory is what Longhorn calls a replica's directory: the volume's name and a random word.
var longhornDirectory = regexp.MustCompile(`^(.+)-[0-9a-f]{8}$`)

// directoryVolume takes the volume's name from a replica's directory: Longhorn's engines have it on their command line only
// since their command line's API 7, of Longhorn 1.4.
func directoryVolume(directory string) string {
	if m := longhornDirectory.FindStringSubmatch(filepath.Base(directory)); m != nil {
		return m[1]
	}
	return ""
}

// jivaVolume takes the volume's name from the host name of a Jiva replica's pod,
// VOLUME-jiva-rep-N of a StatefulSet; any other host name is the best name there is.
func jivaVolume(hostname string) string {
	volume, _, _ := strings.Cut(hostname, "-jiva-rep-")
	return volume
}

// errNotRoot is the error of a process that is named like an engine or replica but belongs to a
// user: it could name any volume on its command line.
var errNotRoot = errors.New("named like an engine or replica of a volume, but not root's: not followed")

// errWaited is the error of a process that is left for the next scan, as others of its pod were waited for.
var errWaited = fmt.Errorf("others of its pod or container did not answer: %w", untrusted.ErrUnanswered)

const (
	// maxCommandLine and maxEnvironment bound what is read of a process; those of engines
	// and replicas are a few KB long.
	maxCommandLine = 32 << 10
	maxEnvironment = 64 << 10
	// maxHostnameFile bounds /etc/hostname.
	maxHostnameFile = 256
	// maxReplicasOfVolume bounds the addresses kept of an engine's command line.
	maxReplicasOfVolume = 32
)

// replicaReader reads processes of procfs for a wire.
type replicaReader struct {
	procfs string
	wire   replicaWire
	calls  *untrusted.Calls
	waits  *ownerWaits
}

// read reads one process; nil means that it is not of this wire or has ended. start distinguishes a process from a
// later one of the same number. Only what the kernel itself knows is read of processes that are named otherwise or are
// not root's: a process can make the reading of its memory, and so of its command line, hang. A container's root can,
// too: the calls are its pod's.
func (r replicaReader) read(pid int) (p *replicaProcess, start uint64, err error) {
	dir := filepath.Join(r.procfs, strconv.Itoa(pid))
	name, parent, start, err := collector.ProcessStat(dir)
	if err != nil || !slices.ContainsFunc(r.wire.names, func(n string) bool { return strings.HasPrefix(name, n) }) {
		return nil, start, nil
	}
	root, err := collector.OwnedByRoot(dir)
	if err != nil {
		return nil, start, nil // it has ended
	}
	if !root {
		return nil, start, fmt.Errorf("process %d: %w", pid, errNotRoot)
	}
	owner := pod.Owner(r.procfs, pid)
	if r.waits.enough(owner) {
		return nil, start, fmt.Errorf("process %d: %w", pid, errWaited)
	}
	defer r.waits.since(owner, time.Now())
	text, err := r.procFile(owner, dir, "cmdline", maxCommandLine)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || err == nil && len(text) == 0 {
		return nil, start, nil
	}
	if err != nil {
		return nil, start, fmt.Errorf("process %d: command line: %w", pid, err)
	}
	args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
	p, err = r.wire.recognise(args, func() string { return r.hostname(owner, dir, pid) })
	if err != nil {
		return nil, start, fmt.Errorf("process %d: %w", pid, err)
	}
	if p != nil {
		p.validate()
		p.Parent = parent
	}
	return p, start, nil
}

// procFile reads a file of a process that its memory stands behind.
func (r replicaReader) procFile(owner, dir, name string, limit int) ([]byte, error) {
	path := filepath.Join(dir, name)
	return untrusted.Call(r.calls, untrusted.Owner{User: owner}, path, func() ([]byte, error) {
		text, err := untrusted.ReadProc(path, limit+1)
		if err == nil && len(text) > limit {
			err = fmt.Errorf("%w: over %d bytes", untrusted.ErrTooLong, limit)
		}
		return text, err
	})
}

// hostname returns the host name of a process's container: what it was started with in the
// variable HOSTNAME, as Kubernetes and container runtimes do, else its /etc/hostname; empty if
// neither is one.
func (r replicaReader) hostname(owner, dir string, pid int) string {
	if text, err := r.procFile(owner, dir, "environ", maxEnvironment); err == nil {
		for variable := range bytes.SplitSeq(text, []byte{0}) {
			if value, ok := bytes.CutPrefix(variable, []byte("HOSTNAME=")); ok {
				if name := untrusted.Hostname(string(value)); name != "" {
					return name
				}
			}
		}
	}
	text, err := untrusted.Call(r.calls, untrusted.Owner{User: owner}, filepath.Join(dir, "root/etc/hostname"), func() ([]byte, error) {
		root, err := untrusted.Root(r.procfs, pid)
		if err != nil {
			return nil, err
		}
		defer root.Close()
		return root.ReadFile("etc/hostname", untrusted.NoLinks, maxHostnameFile)
	})
	if err != nil {
		return ""
	}
	return untrusted.Hostname(string(text))
}

// validate makes a command line's words fit for labels and logs. The directory is left as it is, to be opened.
func (p *replicaProcess) validate() {
	p.Volume = untrusted.Text(p.Volume, untrusted.MaxLabel)
	p.Instance = untrusted.Text(p.Instance, untrusted.MaxLabel)
	p.Host = untrusted.Text(p.Host, untrusted.MaxLabel)
	p.Replicas = p.Replicas[:min(len(p.Replicas), maxReplicasOfVolume)]
	for i, r := range p.Replicas {
		p.Replicas[i] = untrusted.Text(r, untrusted.MaxLabel)
	}
}
