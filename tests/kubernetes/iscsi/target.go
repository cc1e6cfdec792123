package main

import (
	"flag"
	"fmt"
	"net"
	"net/rpc"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// port is iSCSI's. tgtd is called there, by net/rpc, at host by who is in its container.
const (
	host = "127.0.0.1"
	port = "3260"
)

// Target is a Longhorn volume, as its engine has tgtd know it.
type Target struct {
	ID     int
	Name   string // the iSCSI qualified name
	Socket string // of the engine, in the instance manager's container
	Tgtd   int    // its process there, as the node counts
	Size   int64  // in bytes
}

// Targets are those of one instance manager. They end with tgtd.
type Targets struct {
	self int // its process, as the node counts
	mu   sync.Mutex
	all  []Target
}

// None is what a call without arguments, or without an answer, has.
type None struct{}

// New adds a target.
func (t *Targets) New(target Target, _ *None) error {
	return t.change(func() error {
		if slices.ContainsFunc(t.all, func(other Target) bool { return other.ID == target.ID || other.Name == target.Name }) {
			return fmt.Errorf("this target already exists: %d, %s", target.ID, target.Name)
		}
		target.Tgtd = t.self
		t.all = append(t.all, target)
		return nil
	})
}

// Set changes the size of a target, and what it is on, if that is given.
func (t *Targets) Set(target Target, _ *None) error {
	return t.change(func() error {
		i := slices.IndexFunc(t.all, func(other Target) bool { return other.ID == target.ID })
		if i < 0 {
			return fmt.Errorf("can't find the target %d", target.ID)
		}
		if t.all[i].Size = target.Size; target.Socket != "" {
			t.all[i].Socket = target.Socket
		}
		return nil
	})
}

// Delete removes a target.
func (t *Targets) Delete(target Target, _ *None) error {
	return t.change(func() error {
		before := len(t.all)
		if t.all = slices.DeleteFunc(t.all, func(other Target) bool { return other.ID == target.ID }); len(t.all) == before {
			return fmt.Errorf("can't find the target %d", target.ID)
		}
		return nil
	})
}

// List returns all targets.
func (t *Targets) List(_ None, all *[]Target) error {
	return t.change(func() error { *all = slices.Clone(t.all); return nil })
}

func (t *Targets) change(do func() error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return do()
}

func serveTargets() error {
	// An engine ends with its upgrade. tgtd has the same container, and stays.
	self, err := os.Readlink("/host/proc/self")
	if err != nil {
		return err
	}
	t := &Targets{}
	if t.self, err = strconv.Atoi(self); err != nil {
		return fmt.Errorf("/host/proc/self: %w", err)
	}
	server := rpc.NewServer()
	if err := server.Register(t); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", ":"+port)
	if err != nil {
		return err
	}
	server.Accept(listener)
	return nil
}

// call calls the tgtd of a host.
func call(host, method string, arguments, answer any) error {
	client, err := rpc.Dial("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return err
	}
	defer client.Close()
	return client.Call("Targets."+method, arguments, answer)
}

// targets returns those of the tgtd of a host.
func targets(host string) (all []Target, err error) {
	err = call(host, "List", None{}, &all)
	return all, err
}

func tgtadm(arguments []string) error {
	flags := flag.NewFlagSet("tgtadm", flag.ExitOnError)
	var target Target
	op, mode := flags.String("op", "", ""), flags.String("mode", "", "")
	flags.IntVar(&target.ID, "tid", 0, "")
	flags.StringVar(&target.Name, "T", "", "")
	flags.StringVar(&target.Socket, "b", "", "")
	options, params := flags.String("bsopts", "", ""), flags.String("params", "", "")
	for _, ignored := range []string{"lld", "lun", "bstype", "I", "sid", "cid"} {
		flags.String(ignored, "", "")
	}
	_ = flags.Parse(arguments) // it exits
	switch *op + " " + *mode {
	case "show system":
		fmt.Print("System:\n    State: ready\nBacking stores:\n    rdwr\n    longhorn\n")
		_, err := targets(host)
		return err
	case "show target":
		all, err := targets(host)
		if err != nil {
			return err
		}
		for _, t := range all {
			fmt.Printf("Target %d: %s\n", t.ID, t.Name)
		}
		return nil
	case "new target":
		return call(host, "New", target, &None{})
	case "new logicalunit":
		var err error
		if target.Size, err = strconv.ParseInt(after(*options, "size="), 10, 64); err != nil {
			return fmt.Errorf("--bsopts: %w", err)
		}
		return call(host, "Set", target, &None{})
	case "update logicalunit":
		size := after(*params, "bsopts=size=")
		if size == "" {
			return nil // modes of SCSI
		}
		var err error
		if target.Size, err = strconv.ParseInt(size, 10, 64); err != nil {
			return fmt.Errorf("--params: %w", err)
		}
		return call(host, "Set", target, &None{})
	case "delete target":
		return call(host, "Delete", target, &None{})
	case "show conn", "bind target", "unbind target", "delete logicalunit", "delete conn":
		return nil
	}
	return fmt.Errorf("--op %s --mode %s is not known here", *op, *mode)
}

// sgRaw stands for the one command that Longhorn sends to a disk: a new engine has taken over the socket, and tgtd is to
// connect again.
func sgRaw(arguments []string) error {
	if len(arguments) < 2 || arguments[1] != "a6" {
		return fmt.Errorf("%q is not known here", arguments)
	}
	all, err := targets(host)
	if err != nil {
		return err
	}
	socket := "/longhorn-" + filepath.Base(arguments[0]) + ".sock"
	i := slices.IndexFunc(all, func(t Target) bool { return strings.HasSuffix(t.Socket, socket) })
	if i < 0 {
		return fmt.Errorf("no target of %s", arguments[0])
	}
	file := filepath.Join("/host/proc/1/root", mountOf(all[i].Name), volumeFile)
	if err := syscall.Setxattr(file, "user.reconnect", []byte{1}, 0); err != nil {
		return fmt.Errorf("%s: longhorn-bridge does not connect again: %w", file, err)
	}
	return nil
}

// after returns the word after a mark in a text, "" without it.
func after(text, mark string) string {
	_, rest, _ := strings.Cut(text, mark)
	end := strings.IndexAny(rest, ";,\n")
	if end < 0 {
		return rest
	}
	return rest[:end]
}
