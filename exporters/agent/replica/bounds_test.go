package replica

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// fullNode fills the kernel's maps as an engine and three replicas of each of so many volumes
// do, with all that can be under way, and returns the first error.
func fullNode(f *replicaFollower, volumes int) error {
	const replicas = 3
	k := f.kernel
	put := func(name string, key, value any) error {
		if err := k.collection.Maps[name].Update(key, value, ebpf.UpdateNoExist); err != nil {
			return fmt.Errorf("map %s: %w", name, err)
		}
		return nil
	}
	var slot, peer, connection uint32
	follow := func(pid int, p replicaProcess) (*followedProcess, error) {
		slot++
		n := &followedProcess{replicaProcess: p, pid: pid, slot: slot, volume: f.volumeLabel(p.Volume)}
		f.byPID[pid], f.bySlot[slot] = n, n
		return n, put("processes", uint32(pid), bpf.Process{Slot: slot, Role: uint8(p.Role)})
	}
	side := func(n *followedProcess, view operation.View, address string, sockets int) error {
		var number uint32
		if view != operation.ViewFrontend {
			peer++
			number = peer
			to := netip.MustParseAddrPort(address)
			key := bpf.PeerKey{Slot: n.slot, Family: 2, Port: to.Port() + 1}
			bytes := to.Addr().As4()
			copy(key.Address[:], bytes[:])
			if err := put("peers", key, number); err != nil {
				return err
			}
		}
		for range sockets {
			connection++
			if err := put("connections", uint64(connection), bpf.Connection{Slot: n.slot, Peer: number, Id: connection, View: uint8(view)}); err != nil {
				return err
			}
		}
		for op, name := range operation.Ops {
			if name == "sync" || name == "other" || name == "ping" && view == operation.ViewFrontend {
				continue
			}
			l := bpf.Latency{SumNs: 1e6, Bytes: 4096}
			l.Slots[100] = 7
			if err := put("latencies", bpf.LatencyKey{Slot: n.slot, Peer: number, View: uint8(view), Op: uint8(op)}, l); err != nil {
				return err
			}
			for i := range 2 {
				if err := put("inflight", bpf.OperationKey{Connection: connection, Id: uint64(op*10 + i)}, bpf.Operation{Start: f.clock(), Slot: n.slot, Peer: number, View: uint8(view), Op: uint8(op)}); err != nil {
					return err
				}
			}
		}
		if view == operation.ViewRequest {
			return put("last_acks", bpf.AckKey{Slot: n.slot, Peer: number}, bpf.Acks{Last: 5})
		}
		return nil
	}
	for i := range volumes {
		volume := fmt.Sprintf("volume-%d", i)
		engine, err := follow(1_000_000+10*i, replicaProcess{Backend: "longhorn-v1", Role: bpf.Engine, Volume: volume})
		if err != nil {
			return err
		}
		if err := side(engine, operation.ViewFrontend, "", 2); err != nil {
			return err
		}
		for r := range replicas {
			address := fmt.Sprintf("10.%d.%d.%d:10000", i/250, i%250, r+1)
			if err := side(engine, operation.ViewRequest, address, 2); err != nil {
				return err
			}
			n, err := follow(1_000_000+10*i+r+1, replicaProcess{Backend: "longhorn-v1", Role: bpf.Replica, Volume: volume, Host: strings.Split(address, ":")[0], Port: 10000})
			if err != nil {
				return err
			}
			if err := side(n, operation.ViewService, address, 2); err != nil {
				return err
			}
		}
		for w := range uint64(16) {
			if err := put("writes", bpf.WriteKey{Slot: engine.slot, Offset: w << 12, Size: 4096}, bpf.Write{Start: f.clock()}); err != nil {
				return err
			}
		}
	}
	return nil
}

// A node with an engine and three replicas of each of as many volumes as may be has room for
// all of them, each with series of its own.
func TestReplicaFullNode(t *testing.T) {
	testkit.NeedBPF(t)
	c := newReplica(collectortest.Here(), dataconnWire())
	f := c.wires[0]
	var err error
	if f.kernel, err = loadReplicaKernel(collectortest.Platform(t), f.wire, "/proc", nil, collector.NewDispatcher("/proc")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.kernel.Close() })
	if err := fullNode(f, operation.MaxVolumes); err != nil {
		t.Fatal(err)
	}
	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		if err := c.Update(ch); err != nil {
			t.Error(err)
		}
	}()
	registry := prometheus.NewRegistry()
	var all []prometheus.Metric
	for m := range ch {
		all = append(all, m)
	}
	registry.MustRegister(given(all))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	r := operationtest.Reading{}
	for _, family := range families {
		r[family.GetName()] = family
	}
	const v = operation.MaxVolumes
	for name, want := range map[string]int{operationtest.RequestMetric: v * 3 * 4, operationtest.ServiceMetric: v * 3 * 4, operationtest.FrontendMetric: v * 3,
		oldestRequest: v * 3, oldestService: v * 3, oldestFrontend: v, stoppedMetric: v * 4, "plumbline_replica_info": v * 3, "plumbline_replica_last_ack_total": v * 3} {
		if got := len(r[name].GetMetric()); got != want {
			t.Errorf("%d series of %s, want %d", got, name, want)
		}
		r.Each(name, operationtest.Match{"volume": "other"}, func(l operationtest.Match, _ *dto.Metric) { t.Errorf("series %s%v", name, l) })
		r.Each(name, operationtest.Match{"address": "other"}, func(l operationtest.Match, _ *dto.Metric) { t.Errorf("series %s%v", name, l) })
	}
	if got, want := r.Count(operationtest.RequestMetric, nil), uint64(7*v*3*4); got != want {
		t.Errorf("%d requests, want %d", got, want)
	}
	r.Clean(t)
	if got := f.volumeLabel("one-too-many"); got != "other" || f.overflow != 1 {
		t.Errorf("a volume beyond the limit has label %q and %d overflows are counted", got, f.overflow)
	}
	// What they take of the kernel's memory, for docs/understand/replicas.md.
	for name := range mapSizes {
		if info, err := f.kernel.collection.Maps[name].Info(); err == nil {
			memory, _ := info.Memlock()
			t.Logf("map %s: %d entries at most, %.1f MB", name, info.MaxEntries, float64(memory)/(1<<20))
		}
	}
}

// given is a collector of metrics that are there already.
type given []prometheus.Metric

func (given) Describe(chan<- *prometheus.Desc) {}

func (g given) Collect(ch chan<- prometheus.Metric) {
	for _, m := range g {
		ch <- m
	}
}

// Ten thousand short-lived programs that call themselves an engine or replica of another's
// volume, some of them a user's: nothing grows, and the volume's counts stay exact.
func TestReplicaImpostors(t *testing.T) {
	testkit.NeedRoot(t)
	dir, err := os.MkdirTemp("/var/tmp", "plumbline-impostor-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	impostor := filepath.Join(dir, "longhorn-engine")
	copyFile(t, testkit.Tool(t, "sh"), impostor)
	v := newTestVolume(t, 1)
	m := startReplicaCollector(t, v, func(w *replicaWire) {
		w.recognise = func(args []string, hostname func() string) (*replicaProcess, error) {
			p, err := dataconnProcess(args, hostname)
			if strings.HasPrefix(args[0], dir) || p != nil && p.Volume == v.Name {
				return p, err
			}
			return nil, nil
		}
	})
	v.Start()
	m.Followed(2)
	v.exact(m, 100, v.Addresses[0])
	before := m.Read()

	// One stays, and would be the volume's engine if its user were root.
	stays := osexec.Command(impostor, "-c", "read x", "controller", "--frontend", "socket", v.Name)
	stays.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	held, err := stays.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stays.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close(); _ = stays.Wait() })
	m.Eventually("the impostor is refused", func(r operationtest.Reading) bool {
		return r.Value("plumbline_replica_processes_refused_total", nil) > before.Value("plumbline_replica_processes_refused_total", nil)
	})
	const each = 2500
	lines := []string{
		"--volume-name " + v.Name + " replica --listen " + v.Addresses[0] + " /etc",
		"controller --frontend socket " + v.Name,
		"controller",                          // of no volume
		"--volume-name \\377\\376 replica /d", // of one whose name is no UTF-8
	}
	for i, line := range lines {
		script := fmt.Sprintf(`i=0; a=$(printf '%s'); while [ $i -lt %d ]; do %s -c : $a; i=$((i+1)); done 2>/dev/null`, line, each, impostor)
		cmd := osexec.Command("sh", "-c", script)
		cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
		if i < 2 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		var failed *osexec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &failed) {
			t.Fatal(err)
		}
	}
	m.Followed(2)
	v.exact(m, 200, v.Addresses[0])
	r := m.Read()
	f := m.collector.wires[0]
	f.mu.Lock()
	if len(f.rejected) > maxRejected || len(f.volumes) > 2 || len(f.byPID) != 2 || len(f.lastSeen) > 4 || len(f.idle) > 2 {
		t.Errorf("%d rejected, %d volumes, %d processes, %d names, %d idle peers are remembered", len(f.rejected), len(f.volumes), len(f.byPID), len(f.lastSeen), len(f.idle))
	}
	f.mu.Unlock()
	if got := r.Count(operationtest.FrontendMetric, operationtest.Match{"op": "write"}) - before.Count(operationtest.FrontendMetric, operationtest.Match{"op": "write"}); got != 200 {
		t.Errorf("%d writes of the volume, want 200", got)
	}
	for _, name := range []string{operationtest.RequestMetric, operationtest.ServiceMetric, operationtest.FrontendMetric, "plumbline_replica_info", stoppedMetric} {
		r.Each(name, nil, func(l operationtest.Match, _ *dto.Metric) {
			if l["volume"] != v.Name || l["address"] != "" && l["address"] != v.Addresses[0] {
				t.Errorf("an impostor has a series %s%v", name, l)
			}
		})
	}
	t.Logf("refused %v, not understood %v, process events lost %v", r.Value("plumbline_replica_processes_refused_total", nil),
		r.Value("plumbline_replica_process_errors_total", nil), r.Value("plumbline_replica_lost_total", operationtest.Match{"reason": "process_events_full"}))
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}
