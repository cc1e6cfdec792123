package rig

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/longhorn/longhorn-engine/pkg/dataconn"
	"github.com/longhorn/longhorn-engine/pkg/util"
	"github.com/sirupsen/logrus"

	"github.com/plumbline/plumbline/tests/freeport"
)

// VolumeSize is a Volume's size in bytes.
const VolumeSize = 256 << 20

// Replica is one longhorn-engine replica process.
type Replica struct {
	Name, Dir, Address string
	Process            *Process
}

// Volume is a Longhorn volume of real processes, one controller and its replicas, each on its own loopback address, so
// that no other process has the port; and a client where its user would be.
type Volume struct {
	t    T
	Name string
	// Engine is the program.
	Engine string
	Dir    string
	// Network is the first three bytes of its loopback addresses.
	Network  string
	Replicas []*Replica
	// Addresses are what the engine calls its replicas, proxies included.
	Addresses []string
	// Options are more of the controller's.
	Options []string
	// Within is what the processes are started by, and ProcFS what shows them.
	Within []string
	ProcFS string
	// Process is the engine's.
	Process *Process
	Client  *dataconn.Client
}

// NewVolume starts n replicas; Start starts the engine on them.
func NewVolume(t T, n int, options ...string) *Volume {
	t.Helper()
	v := &Volume{
		t:       t,
		Engine:  Tool(t, "longhorn-engine"),
		Name:    fmt.Sprintf("plumbline-test-%08x", rand.Uint32()),
		Network: otherNetwork(""),
		Options: options,
		ProcFS:  "/proc",
	}
	var err error
	// Not in /tmp, which may be a tmpfs: the engine opens its files with O_DIRECT.
	if v.Dir, err = os.MkdirTemp("/var/tmp", "plumbline-replica-"); err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(v.Dir) })
	for range n {
		v.AddReplica()
	}
	return v
}

// AddReplica starts one more replica for the engine to come.
func (v *Volume) AddReplica() *Replica {
	v.t.Helper()
	i := len(v.Replicas)
	r := &Replica{
		Name:    fmt.Sprintf("%s-r-%d", v.Name, i),
		Dir:     filepath.Join(v.Dir, fmt.Sprintf("replica%d", i)),
		Address: v.replicaAddress(i),
	}
	if err := os.Mkdir(r.Dir, 0o700); err != nil {
		v.t.Fatalf("%v", err)
	}
	v.Replicas = append(v.Replicas, r)
	v.Addresses = append(v.Addresses, r.Address)
	v.StartReplica(r)
	return r
}

func (v *Volume) replicaAddress(i int) string { return fmt.Sprintf("%s.%d:10000", v.Network, 10+i) }

// StartReplica starts a replica's process, for the first time or again.
func (v *Volume) StartReplica(r *Replica) {
	v.t.Helper()
	args := append([]string{"--volume-name", v.Name, "replica", "--size", fmt.Sprint(VolumeSize),
		"--listen", r.Address, "--replica-instance-name", r.Name, "--disableRevCounter"}, v.protocol()...)
	r.Process = v.run(append(args, r.Dir)...)
	v.await(r.Process, r.Address)
}

func (v *Volume) run(args ...string) *Process {
	v.t.Helper()
	command := slices.Concat(v.Within, []string{v.Engine}, args)
	return StartProcess(v.t, v.Dir, command[0], command[1:]...)
}

func (v *Volume) protocol() []string {
	if i := slices.Index(v.Options, "--data-server-protocol"); i >= 0 {
		return v.Options[i : i+2]
	}
	return nil
}

// await returns once a process listens.
func (v *Volume) await(p *Process, address string) {
	v.t.Helper()
	p.Await(v.t, func() error { return freeport.Listening(address) })
}

// Socket is the unix socket of the engine's frontend.
func (v *Volume) Socket() string { return "/var/run/longhorn-" + v.Name + ".sock" }

// Address is where the engine listens.
func (v *Volume) Address() string { return v.Network + ".1:9501" }

// Start starts the engine and connects a client to its frontend.
func (v *Volume) Start() {
	v.t.Helper()
	args := []string{"--engine-instance-name", v.Name + "-e-0", "controller", "--listen", v.Address(),
		"--size", fmt.Sprint(VolumeSize), "--current-size", fmt.Sprint(VolumeSize),
		"--frontend", "socket", "--disableRevCounter"}
	for _, a := range v.Addresses {
		args = append(args, "--replica", "tcp://"+a)
	}
	v.Process = v.run(append(append(args, v.Options...), v.Name)...)
	v.t.Cleanup(func() { _ = os.Remove(v.Socket()) })
	v.await(v.Process, v.Address())
	v.Connect()
}

// quiet keeps the client's library from standard error: there it logs each failed request with the request's error, and
// more.
var quiet = sync.OnceFunc(func() { logrus.SetOutput(io.Discard) })

// Connect connects another client.
func (v *Volume) Connect() {
	v.t.Helper()
	quiet()
	var conn net.Conn
	Eventually(v.t, DefaultTimeout, func() (err error) {
		conn, err = net.Dial("unix", v.Socket())
		return err
	})
	v.Client = dataconn.NewClient([]net.Conn{conn}, util.NewSharedTimeouts(DefaultTimeout, DefaultTimeout))
	v.t.Cleanup(v.Client.Close)
}

// Bridge shows the volume as a file, which it returns: that of a loop device.
func (v *Volume) Bridge() string {
	v.t.Helper()
	dir := filepath.Join(v.Dir, "bridge")
	if err := os.Mkdir(dir, 0o700); err != nil {
		v.t.Fatalf("%v", err)
	}
	bridge := StartProcess(v.t, v.Dir, Tool(v.t, "longhorn-bridge"), "--socket="+v.Socket(), fmt.Sprintf("--size=%dB", VolumeSize), "--directory="+dir)
	v.t.Cleanup(bridge.Stop)
	file := filepath.Join(dir, "volume")
	bridge.Await(v.t, func() error { _, err := os.Stat(file); return err })
	return file
}

// Control calls longhorn-engine for the volume.
func (v *Volume) Control(args ...string) {
	v.t.Helper()
	args = append([]string{"--url", "http://" + v.Address(), "--volume-name", v.Name, "--engine-instance-name", v.Name + "-e-0"}, args...)
	if out, err := exec.Command(v.Engine, args...).CombinedOutput(); err != nil {
		v.t.Fatalf("longhorn-engine %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Upgrade starts replicas and an engine as Longhorn upgrades an attached volume: on the same folders and socket, at other
// addresses, beside those of v. Clients are the new engine's from then on. The caller stops v.
func (v *Volume) Upgrade() *Volume {
	v.t.Helper()
	next := *v
	next.Network = otherNetwork(v.Network)
	next.Replicas, next.Addresses = nil, nil
	for i, r := range v.Replicas {
		other := &Replica{Name: r.Name + "-next", Dir: r.Dir, Address: next.replicaAddress(i)}
		next.Replicas, next.Addresses = append(next.Replicas, other), append(next.Addresses, other.Address)
		next.StartReplica(other)
	}
	if err := os.Remove(v.Socket()); err != nil {
		v.t.Fatalf("%v", err)
	}
	next.Start()
	return &next
}

// otherNetwork returns loopback addresses that are not a volume's.
func otherNetwork(taken string) string {
	for {
		if n := fmt.Sprintf("127.%d.%d", 2+rand.IntN(250), rand.IntN(250)); n != taken {
			return n
		}
	}
}

// Stop ends the engine.
func (v *Volume) Stop() { v.Process.Kill() }

// IO runs n operations, at most depth at a time, and fails if one fails.
func (v *Volume) IO(n, depth int, op func(i int) error) {
	v.t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	next := make(chan int)
	for range depth {
		wg.Go(func() {
			for i := range next {
				if err := op(i); err != nil {
					mu.Lock()
					failed = err
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	if failed != nil {
		v.t.Fatalf("I/O: %v", failed)
	}
}

// Write writes size bytes at offset.
func (v *Volume) Write(offset int64, size int) error {
	n, err := v.Client.WriteAt(bytes.Repeat([]byte{0x5a}, size), offset)
	if err == nil && n != size {
		err = fmt.Errorf("wrote %d bytes of %d", n, size)
	}
	return err
}

// Read reads size bytes at offset.
func (v *Volume) Read(offset int64, size int) error {
	n, err := v.Client.ReadAt(make([]byte, size), offset)
	if err == nil && n != size {
		err = fmt.Errorf("read %d bytes of %d", n, size)
	}
	return err
}
