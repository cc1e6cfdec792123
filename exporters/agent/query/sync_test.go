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

const syncDelay = 20 * time.Millisecond

// A commit whose log lies on a slow volume spends its time in sync, whether the server requests it by fdatasync or by
// writing to a file opened with O_DSYNC.
func TestQuerySyncPhase(t *testing.T) {
	q := startQuery(t)
	for _, method := range []string{"fdatasync", "open_datasync"} {
		t.Run(method, func(t *testing.T) {
			pg := servertest.StartPostgres(t, map[string]string{
				"cluster_name": method, "wal_sync_method": method, "autovacuum": "off", "wal_writer_delay": "10s",
			}, func(data string) { slowLog(t, data, method == "open_datasync") })
			querytest.WaitForServer(t, q, method)
			c := pg.Connect(t)
			querytest.Run(t, c, "create table t (i int)")
			const commits = 20
			got := querytest.During(t, q, method, 3*commits, func() {
				for range commits {
					querytest.Run(t, c, "begin")
					querytest.Run(t, c, "insert into t values (1)")
					querytest.Run(t, c, "commit")
				}
			})
			querytest.WantCounts(t, got, map[string]uint64{"begin": commits, "insert": commits, "commit": commits})
			// What is left beside the write: on a busy machine that waits, too, for the file system's
			// server to get a CPU. The syncs' own delay must be in sync all the same.
			p := got.Phases["commit"]
			if rest := got.Sums["commit"] - p["runqueue"] - p["write"]; p["sync"] < 0.9*rest {
				t.Errorf("commit: sync is %.6f s of %.6f s: %v", p["sync"], rest, p)
			}
			wantAtLeast(t, got, "commit", "sync", commits*syncDelay)
			if s := got.Phases["insert"]["sync"]; s != 0 {
				t.Errorf("inserts waited %.3f s for sync", s)
			}
			querytest.WantSum(t, got)
		})
	}
}

// slowNode is a file or folder of a file system that passes everything on to a folder, but
// syncs late or, because FUSE does not sync after a write with O_DSYNC, writes late.
type slowNode struct {
	fs.LoopbackNode
	slowWrites bool
}

func (n *slowNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	f, flags, errno := n.LoopbackNode.Open(ctx, flags)
	return n.slow(f), flags, errno
}

func (n *slowNode) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	inode, f, flags, errno := n.LoopbackNode.Create(ctx, name, flags, mode, out)
	return inode, n.slow(f), flags, errno
}

func (n *slowNode) slow(f fs.FileHandle) fs.FileHandle {
	if l, ok := f.(*fs.LoopbackFile); ok {
		return &slowFile{l, n.slowWrites}
	}
	return f
}

type slowFile struct {
	*fs.LoopbackFile
	slowWrites bool
}

// PassthroughFd keeps the kernel from going round this file system.
func (f *slowFile) PassthroughFd() (int, bool) { return 0, false }

func (f *slowFile) Fsync(ctx context.Context, flags uint32) syscall.Errno {
	time.Sleep(syncDelay)
	return f.LoopbackFile.Fsync(ctx, flags)
}

func (f *slowFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	if f.slowWrites {
		time.Sleep(syncDelay)
	}
	return f.LoopbackFile.Write(ctx, data, off)
}

// slowLog puts a data directory's write-ahead log on a file system with slow syncs or writes.
func slowLog(t *testing.T, data string, slowWrites bool) {
	t.Helper()
	log, backing, mount := filepath.Join(data, "pg_wal"), data+"-wal", data+"-slow"
	owner, err := os.Stat(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(log, backing); err != nil {
		t.Fatal(err)
	}
	passOn(t, backing, mount, func(r *fs.LoopbackRoot) fs.InodeEmbedder { return &slowNode{fs.LoopbackNode{RootData: r}, slowWrites} })
	if err := os.Symlink(mount, log); err != nil {
		t.Fatal(err)
	}
	s := owner.Sys().(*syscall.Stat_t)
	if err := os.Lchown(log, int(s.Uid), int(s.Gid)); err != nil {
		t.Fatal(err)
	}
}

// passOn mounts a file system that passes everything on to a folder, through nodes made by node, until the test ends.
func passOn(t *testing.T, backing, mount string, node func(*fs.LoopbackRoot) fs.InodeEmbedder) {
	t.Helper()
	if err := os.Mkdir(mount, 0o700); err != nil {
		t.Fatal(err)
	}
	root := &fs.LoopbackRoot{Path: backing}
	//lint:ignore SA1019 every node is of one kind, and NodeWrapChilder wraps nodes, which hides their own methods from go-fuse
	root.NewNode = func(r *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return node(r)
	}
	//lint:ignore SA1019 as above
	server, err := fs.Mount(mount, root.NewNode(root, nil, "", nil), &fs.Options{
		MountOptions: fuse.MountOptions{AllowOther: true, DirectMountStrict: true, FsName: "slow", Name: "slow"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Unmount(); err != nil {
			t.Error(err)
		}
	})
}
