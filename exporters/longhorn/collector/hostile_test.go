package collector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longhorn/types/pkg/generated/enginerpc"
	"github.com/longhorn/types/pkg/generated/spdkrpc"
	"google.golang.org/protobuf/proto"

	"github.com/plumbline/plumbline/tests/testkit"
)

// peer listens and calls serve for each connection.
func peer(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// settings is the first frame of an HTTP/2 server.
const settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"

// An engine that is no engine, or worse, is counted and costs no other volume anything.
func TestHostilePeers(t *testing.T) {
	for name, serve := range map[string]func(net.Conn){
		"closes":   func(net.Conn) {},
		"silent":   func(c net.Conn) { io.Copy(io.Discard, c) },
		"garbage":  func(c net.Conn) { fmt.Fprint(c, strings.Repeat("HTTP/1.1 200 OK\r\n\r\n", 1000)) },
		"one byte": func(c net.Conn) { drip(c, settings+strings.Repeat("\x00", 1000)) },
		"cut off":  func(c net.Conn) { fmt.Fprint(c, settings+"\x00\x10\x00\x01\x04\x00\x00\x00\x01half") },
		"endless": func(c net.Conn) {
			random, block := rand.NewChaCha8([32]byte{}), make([]byte, 1<<16)
			for {
				random.Read(block)
				if _, err := c.Write(block); err != nil {
					return
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			good := startFake(t, nil)
			good.metrics, good.volume = &enginerpc.Metrics{}, &enginerpc.Volume{Name: "good", Size: 1 << 30}
			w := exporterFor(t, quick, Target{Volume: "good", Engine: good.address, Backend: BackendV1},
				Target{Volume: "bad", Engine: peer(t, serve), Backend: BackendV1})
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				s, _ := w.scrape()
				counted := 0.0
				for _, reason := range reasons {
					counted += s[fmt.Sprintf("plumbline_longhorn_poll_errors_total{reason=%q,volume=%q}", reason, "bad")]
				}
				if counted == 0 {
					return errors.New("the bad engine is not counted")
				}
				return s.want(map[string]float64{`plumbline_longhorn_engine_up{volume="good"}`: 1, `plumbline_longhorn_engine_up{volume="bad"}`: 0,
					`plumbline_longhorn_engine_size_bytes{volume="good"}`:                      1 << 30,
					`plumbline_longhorn_poll_errors_total{reason="timeout",volume="good"}`:     0,
					`plumbline_longhorn_poll_errors_total{reason="unavailable",volume="good"}`: 0})
			})
		})
	}
}

func drip(c net.Conn, text string) {
	for i := range len(text) {
		if _, err := c.Write([]byte{text[i]}); err != nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// brokenAPI panics, as a client does whose library meets an answer that it did not expect.
type brokenAPI struct{ engineAPI }

func (brokenAPI) metrics(context.Context) (*enginerpc.Metrics, error) { panic("metrics") }
func (brokenAPI) replicas(context.Context) ([]*enginerpc.ControllerReplica, error) {
	panic("replicas")
}
func (brokenAPI) volume(context.Context) (*enginerpc.Volume, error) { panic("volume") }

// A panic in a poll is one more way to fail: it is counted, and neither the exporter ends nor a lock stays.
func TestPollPanics(t *testing.T) {
	w := exporterFor(t, quick)
	v := newVolume(w.fleet.opts, Target{Volume: "vol", Backend: BackendV1})
	ctx, cancel := context.WithCancel(t.Context())
	var first sync.WaitGroup
	first.Add(1)
	v.every(ctx, time.Millisecond, &first, func() {
		defer cancel()
		v.pollMetrics(ctx, brokenAPI{})
	})
	first.Wait()
	v.pollState(t.Context(), brokenAPI{})
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.errors[reasonOther] < 3 || v.listOK {
		t.Errorf("counted %v", v.errors)
	}
}

// An engine that names other replicas with every answer leaves no trace of the former ones.
func TestReplicasThatChange(t *testing.T) {
	w := exporterFor(t, quick)
	v := newVolume(w.fleet.opts, Target{Volume: "vol", Backend: BackendV1})
	for round := range 100 {
		var list []*enginerpc.ControllerReplica
		for i := range maxReplicas {
			list = append(list, &enginerpc.ControllerReplica{Mode: 99, Address: &enginerpc.ReplicaAddress{InstanceName: fmt.Sprint(round, "-", i)}})
		}
		v.setState(list, nil, nil, nil)
	}
	if len(v.trouble) > maxTrouble || len(v.wo) > maxReplicas {
		t.Errorf("%d and %d replicas are remembered", len(v.trouble), len(v.wo))
	}
}

// FuzzReplicaAnswer reads what a replica or its SPDK service may answer: what is taken of it can be true.
func FuzzReplicaAnswer(f *testing.F) {
	for _, m := range []proto.Message{
		&enginerpc.Replica{HeadFileSize: -1, Chain: []string{"a"}, Disks: map[string]*enginerpc.DiskInfo{"s": {Size: "-1"}, "": nil}},
		&enginerpc.Replica{Head: "h", HeadFileSize: 1 << 62, Chain: []string{"h"}, Disks: map[string]*enginerpc.DiskInfo{"s": {Size: "1e9"}}},
		&spdkrpc.Replica{Head: &spdkrpc.Lvol{ActualSize: 1 << 63}, Snapshots: map[string]*spdkrpc.Lvol{"s": nil}},
		&enginerpc.ReplicaRebuildStatusResponse{Progress: -1, State: "complete"},
		&enginerpc.Metrics{ReadIOPS: 1 << 63, WriteLatency: 1 << 63},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		check := func(d *disks, err error) {
			if err == nil && d != nil && (d.head < 0 || d.head > maxSize || d.snapshotBytes < 0 || d.snapshots > maxSnapshots || d.snapshotBytes > maxSize*maxSnapshots) {
				t.Errorf("taken: %+v", d)
			}
		}
		var v1 enginerpc.Replica
		if proto.Unmarshal(raw, &v1) == nil {
			check(disksOf(&v1))
		}
		var v2 spdkrpc.Replica
		if proto.Unmarshal(raw, &v2) == nil {
			check(lvolsOf(&v2))
		}
		var status enginerpc.ReplicaRebuildStatusResponse
		if proto.Unmarshal(raw, &status) == nil && (&replicaState{}).setRebuild(&status) == nil {
			if done := rebuildDone(&status); done < 0 || done > 1 {
				t.Errorf("%v of a rebuild are done", done)
			}
		}
		var m enginerpc.Metrics
		if proto.Unmarshal(raw, &m) == nil && checkMetrics(&m) == nil {
			var s sampled
			s.addWindow(&m, time.Now())
			if s.readSeconds > maxRate*86400 || s.writtenSeconds > maxRate*86400 {
				t.Errorf("%+v", s)
			}
		}
	})
}
