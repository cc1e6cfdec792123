package initiator

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

const (
	diskSize = 16 << 20
	blocks   = diskSize / BlockSize
	iqn      = "iqn.2026-11.io.plumbline:pvc-initiator"
)

// programs are the targets'.
var programs = []struct {
	name  string
	start func(t rig.T, name, file string) *rig.ISCSIProgram
}{{"tgtd", rig.NewTgt}, {"istgt", rig.NewIstgt}}

// each runs a test on each target's program, with each combination of digests.
func each(t *testing.T, f func(t *testing.T, p *rig.ISCSIProgram, file string, s *Session)) {
	for _, program := range programs {
		t.Run(program.name, func(t *testing.T) {
			testkit.NeedRoot(t)
			testkit.Tool(t, program.name)
			file := filepath.Join(t.TempDir(), "disk")
			if err := os.WriteFile(file, make([]byte, diskSize), 0o600); err != nil {
				t.Fatal(err)
			}
			p := program.start(t, iqn, file)
			for i := range 4 {
				o := Options{HeaderDigest: i&1 != 0, DataDigest: i&2 != 0}
				t.Run(fmt.Sprintf("digests %v and %v", o.HeaderDigest, o.DataDigest), func(t *testing.T) {
					s, err := Login(p.Address, p.Name, o)
					if err != nil {
						t.Fatal(err)
					}
					// What hangs shall fail.
					limit := time.AfterFunc(testkit.DefaultTimeout, func() { _ = s.Close() })
					t.Cleanup(func() {
						limit.Stop()
						_ = s.Close()
					})
					f(t, p, file, s)
				})
			}
		})
	}
}

func random(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	return b
}

// What was written is read again, and is in the target's file: with no R2T, with one, and with several.
func TestReadWrite(t *testing.T) {
	each(t, func(t *testing.T, p *rig.ISCSIProgram, file string, s *Session) {
		if n, size, err := s.ReadCapacity(p.LUN); err != nil || n != blocks || size != BlockSize {
			t.Fatalf("%d blocks of %d bytes, %v", n, size, err)
		}
		disk, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer disk.Close()
		for _, n := range []int{1, firstBurst / BlockSize, firstBurst/BlockSize + 1, 100, maxBurst/BlockSize + 1, 512} {
			at, data := uint32(rand.IntN(blocks-n)), random(n*BlockSize)
			if err := s.Write(p.LUN, at, data); err != nil {
				t.Fatalf("writing %d blocks: %v", n, err)
			}
			if got, err := s.Read(p.LUN, at, n); err != nil || !bytes.Equal(got, data) {
				t.Fatalf("reading %d blocks: %v, or not what was written", n, err)
			}
			if err := s.Sync(p.LUN, at, n); err != nil {
				t.Fatalf("syncing %d blocks: %v", n, err)
			}
			stored := make([]byte, len(data))
			if _, err := disk.ReadAt(stored, int64(at)*BlockSize); err != nil || !bytes.Equal(stored, data) {
				t.Fatalf("%d blocks in the file: %v, or not what was written", n, err)
			}
		}
		if err := s.Logout(); err != nil {
			t.Error(err)
		}
		if _, err := s.Read(p.LUN, 0, 1); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a read after the session's end: %v", err)
		}
	})
}

// More commands at a time than a target takes, some of which wait for its window.
func TestManyAtATime(t *testing.T) {
	each(t, func(t *testing.T, p *rig.ISCSIProgram, _ string, s *Session) {
		const each = 100
		var (
			data  [][]byte
			tasks []*Task
		)
		submit := func(c Command) {
			task, err := s.Submit(c)
			if err != nil {
				t.Fatal(err)
			}
			tasks = append(tasks, task)
		}
		// The unit first reports its power-on.
		if _, err := s.Read(p.LUN, 0, 1); err != nil {
			t.Fatal(err)
		}
		for i := range each {
			data = append(data, random(16*BlockSize))
			submit(Write10(p.LUN, uint32(16*i), data[i]))
			submit(Sync10(p.LUN, uint32(16*i), 16))
		}
		for i, task := range tasks {
			if _, err := task.Wait(); err != nil {
				t.Fatalf("command %d: %v", i, err)
			}
		}
		tasks = nil
		for i := range each {
			submit(Read10(p.LUN, uint32(16*i), 16))
		}
		tags := map[uint32]bool{}
		for i, task := range tasks {
			if got, err := task.Wait(); err != nil || !bytes.Equal(got, data[i]) {
				t.Fatalf("read %d: %v, or not what was written", i, err)
			}
			tags[task.Tag] = true
		}
		if len(tags) != each {
			t.Errorf("%d tags for %d commands", len(tags), each)
		}
	})
}

// An error is returned, and the session continues.
func TestErrors(t *testing.T) {
	each(t, func(t *testing.T, p *rig.ISCSIProgram, _ string, s *Session) {
		const checkCondition = 2
		var status *StatusError
		if _, err := s.Read(p.LUN, blocks, 1); !errors.As(err, &status) || status.Status != checkCondition {
			t.Errorf("a read beyond the end: %v", err)
		}
		// A command with a response cannot be aborted. istgt reports that it was.
		task, err := s.Submit(Read10(p.LUN, 0, 1))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := task.Wait(); err != nil {
			t.Error(err)
		}
		var refused TaskError
		if err := s.Abort(task.Tag); err != nil && !errors.As(err, &refused) {
			t.Errorf("an abort of what has ended: %v", err)
		}
		if _, err := s.Read(p.LUN, 0, 1); err != nil {
			t.Error(err)
		}
		if _, err := s.Submit(Command{LUN: 256}); err == nil {
			t.Error("there is a unit 256")
		}
	})
}

func TestNoSuchTarget(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.Tool(t, "tgtd")
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, diskSize), 0o600); err != nil {
		t.Fatal(err)
	}
	p := rig.NewTgt(t, iqn, file)
	if s, err := Login(p.Address, iqn+"-another", Options{}); err == nil {
		_ = s.Close()
		t.Error("logged in to another target")
	}
}
