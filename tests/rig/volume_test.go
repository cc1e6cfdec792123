package rig

import (
	"fmt"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A client whose engine is gone returns errors, and logs nothing on standard error, where it would drown a failing
// test's output.
func TestClientIsQuiet(t *testing.T) {
	testkit.NeedRoot(t)
	v := &Volume{t: t, Name: fmt.Sprintf("plumbline-quiet-%d", os.Getpid())}
	engine, err := net.Listen("unix", v.Socket())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	go func() {
		if conn, err := engine.Accept(); err == nil {
			_ = conn.Close()
		}
	}()
	log, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	before, err := unix.Dup(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Dup3(int(log.Fd()), 2, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Dup3(before, 2, 0)
		_ = unix.Close(before)
	})
	v.Connect()
	for range 100 {
		if err := v.Write(0, 4096); err == nil {
			t.Fatal("a write succeeded without an engine")
		}
	}
	if output, err := os.ReadFile(log.Name()); err != nil || len(output) > 0 {
		t.Errorf("standard error got %q, %v", output[:min(len(output), 500)], err)
	}
}
