// Package replicas plays Longhorn's manager for the lab's volumes: which replicas an engine may
// start with, and how one that was away comes back.
//
// A replica that was away has missed writes: an engine started with it would read old data. So a file, the mark, is
// beside its data from when it fell out until it was rebuilt.
package replicas

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Volume is one of the lab's volumes.
type Volume struct {
	// Program is longhorn-engine, Engine the engine's control address, Name the volume's name, Log
	// the engine's log over all of its lives, Size the volume's size in bytes.
	Program, Engine, Name, Log string
	Size                       int64
}

// Replica is one of its replicas.
type Replica struct {
	// Address is host:port, Data the folder with the replica's files, Mark the file beside it, Process
	// the name of its process.
	Address, Data, Mark, Process string
}

// modeLine is what the engine logs when a replica's mode changes.
var modeLine = regexp.MustCompile(`Setting replica tcp://(\S+) to mode (\w+)`)

// modes returns the last mode that the engine's log has of each replica, and the addresses in the
// order in which they fell out.
func (v Volume) modes() (last map[string]string, out []string, err error) {
	last = map[string]string{}
	f, err := os.Open(v.Log)
	if errors.Is(err, fs.ErrNotExist) {
		return last, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadString('\n')
		if m := modeLine.FindStringSubmatch(line); m != nil {
			if last[m[1]] = m[2]; m[2] == "ERR" {
				out = append(out, m[1])
			}
		}
		if err == io.EOF {
			return last, out, nil
		}
		if err != nil {
			return nil, nil, err
		}
	}
}

// Select returns the replicas that the engine may start with, and marks the others; fallen are those that had no mark
// yet: their processes have to restart to be rebuilt. Without one that is good it is the one that fell out last: it has
// every write that was acknowledged.
func (v Volume) Select(all []Replica) (good, fallen []Replica, err error) {
	last, out, err := v.modes()
	if err != nil {
		return nil, nil, err
	}
	for _, r := range all {
		if mode := last[r.Address]; mode != "" && mode != "RW" && !marked(r) {
			if err := os.WriteFile(r.Mark, nil, 0o644); err != nil {
				return nil, nil, err
			}
			fallen = append(fallen, r)
		}
		if !marked(r) {
			good = append(good, r)
		}
	}
	if len(good) > 0 || len(out) == 0 {
		return good, fallen, nil
	}
	for _, r := range all {
		if r.Address == out[len(out)-1] {
			is := func(other Replica) bool { return other.Address == r.Address }
			return []Replica{r}, slices.DeleteFunc(fallen, is), os.Remove(r.Mark)
		}
	}
	return nil, fallen, nil
}

func marked(r Replica) bool {
	_, err := os.Stat(r.Mark)
	return err == nil
}

// Prepare returns when a replica that was away may start: without its data once the engine has another good replica;
// with them, and unmarked, if it was the last good one. Then restart has the engine restart.
func (v Volume) Prepare(ctx context.Context, r Replica, log io.Writer, restart func(context.Context) error) error {
	reported := false
	for {
		list, err := v.list(ctx)
		others := 0
		for address, mode := range list {
			if mode == "RW" && address != r.Address {
				others++
			}
		}
		if others > 0 {
			fmt.Fprintf(log, "plumbline-lab: the replica was away; its data are removed, the engine rebuilds it\n")
			return os.RemoveAll(r.Data)
		}
		if err == nil && len(list) > 0 {
			if _, out, err := v.modes(); err == nil && len(out) > 0 && out[len(out)-1] == r.Address {
				fmt.Fprintf(log, "plumbline-lab: the volume has lost its last replica, which is this one; its engine starts anew\n")
				if err := os.Remove(r.Mark); err != nil {
					return err
				}
				return restart(ctx)
			}
		}
		if !marked(r) {
			return nil // the engine is to start with it
		}
		if !reported {
			reported = true
			fmt.Fprintf(log, "plumbline-lab: the replica was away; it waits for an engine with a good replica (%v)\n", err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// Rejoin adds a started replica to its engine, which copies the data, and takes its mark away. One
// replica of a volume at a time: an engine refuses a second. A replica that was refused takes no other
// attempt before a start of its own: its process is ended, and the supervisor starts it again. Rejoin
// ends when that process, the replica's, does.
func (v Volume) Rejoin(ctx context.Context, r Replica, process int, log io.Writer) error {
	turn, err := os.OpenFile(filepath.Join(filepath.Dir(r.Mark), "rebuild.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer turn.Close()
	for {
		if err := unix.Kill(process, 0); err != nil {
			return fmt.Errorf("the replica has ended: %w", err)
		}
		// The engine answers and is not busy with another replica, here or by somebody's hand.
		list, err := v.list(ctx)
		if err == nil && len(list) > 0 && !slices.Contains(slices.Collect(maps.Values(list)), "WO") &&
			unix.Flock(int(turn.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
			break
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(time.Second):
		}
	}
	// What the engine still has of its former life, if it does.
	_, _ = v.call(ctx, "rm-replica", "tcp://"+r.Address)
	size := fmt.Sprint(v.Size)
	if _, err := v.call(ctx, "add-replica", "--size", size, "--current-size", size, "tcp://"+r.Address); err != nil {
		_, _ = v.call(ctx, "rm-replica", "tcp://"+r.Address)
		return errors.Join(fmt.Errorf("the engine did not take the replica, which is started anew: %w", err), unix.Kill(process, unix.SIGKILL))
	}
	fmt.Fprintln(log, "plumbline-lab: the replica is rebuilt")
	return os.Remove(r.Mark)
}

// list returns the modes of the engine's replicas by their addresses.
func (v Volume) list(ctx context.Context) (map[string]string, error) {
	out, err := v.call(ctx, "ls-replica")
	if err != nil {
		return nil, err
	}
	list := map[string]string{}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) >= 2 && strings.HasPrefix(f[0], "tcp://") {
			list[strings.TrimPrefix(f[0], "tcp://")] = f[1]
		}
	}
	return list, nil
}

// callTime bounds one call of the engine; a rebuild of the lab's small volumes is within it.
const callTime = 5 * time.Minute

func (v Volume) call(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	args = append([]string{"--url", "http://" + v.Engine, "--volume-name", v.Name, "--engine-instance-name", v.Name + "-e-0"}, args...)
	cmd := exec.CommandContext(ctx, v.Program, args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("longhorn-engine %s: %w: %s", args[6], err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}
