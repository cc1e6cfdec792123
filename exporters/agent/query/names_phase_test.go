package query

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// lookupDelay is how long the slow file system takes to find a name.
const lookupDelay = 20 * time.Millisecond

// forgetfulNode finds names late, and every time anew.
type forgetfulNode struct{ fs.LoopbackNode }

func (n *forgetfulNode) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	time.Sleep(lookupDelay)
	return n.LoopbackNode.Lookup(ctx, name, out)
}

func (n *forgetfulNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, flags, errno := n.LoopbackNode.Open(ctx, flags)
	if l, ok := f.(*fs.LoopbackFile); ok {
		return &lateFile{l}, flags, errno
	}
	return f, flags, errno
}

// lateFile is closed late.
type lateFile struct{ *fs.LoopbackFile }

// PassthroughFd keeps the kernel from going round this file system.
func (f *lateFile) PassthroughFd() (int, bool) { return 0, false }

func (f *lateFile) Flush(ctx context.Context) syscall.Errno {
	time.Sleep(lookupDelay)
	return f.LoopbackFile.Flush(ctx)
}

// What a statement waits for on a file system's names is read where it looks for them and write where
// it changes them; it is no lock.
func TestQueryNamesPhase(t *testing.T) {
	q := startQuery(t)
	var mount string
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "names", "autovacuum": "off"}, func(data string) {
		owner, err := os.Stat(data)
		if err != nil {
			t.Fatal(err)
		}
		backing := data + "-space"
		mount = data + "-slow-names"
		if err := os.Mkdir(backing, 0o700); err != nil {
			t.Fatal(err)
		}
		s := owner.Sys().(*syscall.Stat_t)
		if err := os.Chown(backing, int(s.Uid), int(s.Gid)); err != nil {
			t.Fatal(err)
		}
		passOn(t, backing, mount, func(r *fs.LoopbackRoot) fs.InodeEmbedder { return &forgetfulNode{fs.LoopbackNode{RootData: r}} })
	})
	querytest.WaitForServer(t, q, "names")
	c := pg.Connect(t)
	querytest.Run(t, c, "create tablespace slow location '"+mount+"'")
	querytest.Run(t, c, "create table t (i int) tablespace slow")
	var file string
	if err := c.QueryRow(t.Context(), "select pg_relation_filepath('t')").Scan(&file); err != nil {
		t.Fatal(err)
	}
	const times = 10
	opened := querytest.During(t, q, "names", times, func() {
		for range times {
			querytest.Run(t, c, "select pg_stat_file('"+filepath.Join(filepath.Dir(file), "nothing")+"', true)")
		}
	})
	wantShare(t, opened, "select", "read", 0.9)
	wantAtLeast(t, opened, "select", "read", times*lookupDelay)
	querytest.WantSum(t, opened)
	closed := querytest.During(t, q, "names", times, func() {
		for range times {
			querytest.Run(t, c, "select length(pg_read_binary_file('"+file+"'))")
		}
	})
	wantAtLeast(t, closed, "select", "write", times*lookupDelay)
	wantShare(t, closed, "select", "write", 0.9, "read")
	querytest.WantSum(t, closed)
	// One for each of the table's files that may be there.
	dropped := querytest.During(t, q, "names", 1, func() { querytest.Run(t, c, "drop table t") })
	wantAtLeast(t, dropped, "other", "write", 3*lookupDelay)
	wantShare(t, dropped, "other", "write", 0.6, "sync", "read")
	querytest.WantSum(t, dropped)
}
