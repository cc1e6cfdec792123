package collector

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A node that does not list its devices delays neither another node's devices nor any states.
func TestDevicesOfNodeThatHangs(t *testing.T) {
	answers := mayastorAnswers(t, true, "127.0.0.1:1")
	second := clone(answers["/nodes"].([]any)[0]).(map[string]any)
	second["id"] = "node-2"
	answers["/nodes"] = append(answers["/nodes"].([]any), second)
	pool := clone(answers["/pools"].([]any)[0]).(map[string]any)
	pool["id"] = "pool-2"
	pool["state"].(map[string]any)["node"] = "node-2"
	answers["/pools"] = append(answers["/pools"].([]any), pool)
	answers["/nodes/node-2/block_devices"] = answers["/nodes/node-1/block_devices"]
	f := startMayastor(t, answers)
	f.stuck = "/nodes/node-1/block_devices"

	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	registry := registryOf(t, ctx, Options{Log: slog.New(slog.DiscardHandler), RootFS: "/", Mayastor: f.url,
		Interval: 50 * time.Millisecond, Timeout: testkit.DefaultTimeout}, "mayastor")
	const (
		info = `plumbline_openebs_pool_info{backend="mayastor",device=`
		disk = `disk="aio:///dev/disk/by-id/d1?blk_size=512",`
	)
	await(t, registry, `plumbline_openebs_mayastor_up 1`, `plumbline_scrape_collector_success{collector="mayastor"} 1`,
		info+`"sdb",`+disk+`node="node-2",pool="pool-2"} 1`,
		info+`"",`+disk+`node="node-1",pool="pool-1"} 1`)
	f.set(func() { volume(f, 0)["state"].(map[string]any)["status"] = "Faulted" })
	await(t, registry, `plumbline_openebs_volume_state{backend="mayastor",state="Faulted",volume="pvc-vol-a"} 1`)
	f.set(func() { f.stuck = "" })
	await(t, registry, info+`"sdb",`+disk+`node="node-1",pool="pool-1"} 1`)
}

// Until a node was queried, its devices are pending; when it is gone they are forgotten.
func TestDevicesArePending(t *testing.T) {
	answers := mayastorAnswers(t, true, "127.0.0.1:1")
	f := startMayastor(t, answers)
	gate := make(chan struct{})
	f.hang = gate
	failed := make(chan error, 1)
	d := newDevices(Options{Log: slog.New(slog.DiscardHandler), Timeout: testkit.DefaultTimeout}, newRESTClient(f.url), func(err error) { failed <- err })
	d.timeout = testkit.DefaultTimeout
	var node restNode
	if err := json.Unmarshal([]byte(`{"id":"node-1","state":{"status":"Online"}}`), &node); err != nil {
		t.Fatal(err)
	}
	if name, pending := d.name("node-1", "/dev/disk/by-id/d1"); name != "" || pending {
		t.Errorf("a node that nobody knows: %q, %v", name, pending)
	}
	d.refresh(t.Context(), []restNode{node})
	if name, pending := d.name("node-1", "/dev/disk/by-id/d1"); name != "" || !pending {
		t.Errorf("a node whose list is under way: %q, %v", name, pending)
	}
	close(gate)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if _, pending := d.name("node-1", ""); pending {
			return errors.New("still pending")
		}
		return nil
	})
	if len(failed) > 0 {
		t.Error(<-failed)
	}
	if name, _ := d.name("node-1", "/dev/disk/by-id/d1"); name != "sdb" {
		t.Errorf("a node that answered: %q", name)
	}
	d.refresh(t.Context(), nil)
	if name, pending := d.name("node-1", "/dev/disk/by-id/d1"); name != "" || pending {
		t.Errorf("a node that is gone: %q, %v", name, pending)
	}
}

// The kernel's name of a disk is all that is behind /dev/, by each of its links; a partition counts as its disk.
func TestKernelNames(t *testing.T) {
	var list []restDevice
	if err := json.Unmarshal([]byte(`[{"devname":"/dev/cciss/c0d0","devlinks":["/dev/disk/by-id/a"]},
		{"devname":"/dev/cciss/c0d1p2","devlinks":["/dev/disk/by-id/b"],"partition":{"parent":"/dev/cciss/c0d1"}}]`), &list); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"/dev/cciss/c0d0": "cciss/c0d0", "/dev/disk/by-id/a": "cciss/c0d0", "/dev/cciss/c0d1p2": "cciss/c0d1", "/dev/disk/by-id/b": "cciss/c0d1"}
	if got := kernelNames(list); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
