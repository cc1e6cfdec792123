// Package untrustedtest makes file systems that hang, for tests.
package untrustedtest

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// HungMount mounts a FUSE file system whose server never answers, and returns its folder. Every
// call that needs the file system hangs until release is called, which the end of the test does,
// too; then such calls fail.
func HungMount(t testing.TB) (dir string, release func()) {
	t.Helper()
	testkit.NeedRoot(t)
	server, err := os.OpenFile("/dev/fuse", os.O_RDWR, 0)
	if err != nil {
		testkit.Skip(t, "needs FUSE: "+err.Error())
	}
	dir = t.TempDir()
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", server.Fd())
	if err := unix.Mount("hung", dir, "fuse.hung", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		server.Close()
		t.Fatalf("mounting a FUSE file system: %v", err)
	}
	var once sync.Once
	release = func() {
		// Its requests fail once the server is closed.
		once.Do(func() { server.Close() })
	}
	t.Cleanup(func() {
		release()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir, release
}
