package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/untrusted/untrustedtest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// rooted gives the made-up machine's PID 1 a root with links in it: /links/one leads to /srv/local/one, /out to a
// folder that is not below the root.
func rooted(t *testing.T, proc string) {
	t.Helper()
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "srv/local/one"), 0o755), os.MkdirAll(filepath.Join(root, "links"), 0o755),
		os.Symlink("/srv/local/one", filepath.Join(root, "links/one")), os.Symlink(filepath.Dir(root), filepath.Join(root, "out")),
		os.Symlink(root, filepath.Join(proc, "1", "root"))); err != nil {
		t.Fatal(err)
	}
}

// withLongTimeout has finding a folder take up to a minute.
func withLongTimeout(n *Node) *Node {
	n.folders.calls = untrusted.NewCalls(time.Minute, 8)
	return n
}

// A folder's path may go over links: the volume is where they lead on the host, and a container that has that as a
// mount uses it.
func TestFolderWithLinks(t *testing.T) {
	proc, sys := machine(t)
	rooted(t, proc)
	found, err := withLongTimeout(NewNode(proc, sys, fixed{identities: []Identity{
		{Volume: "used", Directory: "/links/one", InUse: true},
		{Volume: "elsewhere", Directory: "/links/../links/one/", InUse: true, elsewhere: true}, // its links are not followed
		{Volume: "named", Directory: "/links/one"},
		{Volume: "missing", Directory: "/links/two"},
		{Volume: "out", Directory: "/out"},
		{Volume: "unused", Directory: "/links", InUse: true},
	}})).Find()
	if err != nil {
		t.Error(err)
	}
	var got []string
	for _, f := range found {
		got = append(got, f.Volume+"="+f.Place.Path)
		if strings.HasPrefix(f.Place.Path, "/srv") && f.Directory == f.Place.Path {
			t.Errorf("%s: its identity has another folder, %s", f.Volume, f.Directory)
		}
	}
	want := "used=/srv/local/one named=/srv/local/one missing=/links/two out=/out"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("found %q, want %q", text, want)
	}
}

// While the file system on the way to a volume's folder hangs, the volume stays where it was; one without a known place
// is reported.
func TestFolderHung(t *testing.T) {
	proc, sys := machine(t)
	rooted(t, proc)
	n := NewNode(proc, sys, fixed{identities: []Identity{{Volume: "linked", Directory: "/links/one"}, {Volume: "one", Directory: "/srv/local/one"}}})
	is := func(want, trouble string) {
		t.Helper()
		found, err := n.Find()
		var got []string
		for _, f := range found {
			got = append(got, f.Volume+"="+f.Place.Path)
		}
		text := ""
		if err != nil {
			text = err.Error()
		}
		if strings.Join(got, " ") != want || (err != nil) != (trouble != "") || !strings.Contains(text, trouble) {
			t.Errorf("found %q, %v; want %q and %q", got, err, want, trouble)
		}
	}
	withLongTimeout(n)
	is("linked=/srv/local/one one=/srv/local/one", "")
	hung, release := untrustedtest.HungMount(t)
	link := filepath.Join(proc, "1", "root")
	if err := errors.Join(os.Remove(link), os.Symlink(hung, link)); err != nil {
		t.Fatal(err)
	}
	n.folders.calls = untrusted.NewCalls(50*time.Millisecond, 8)
	is("linked=/srv/local/one one=/srv/local/one", "")
	n.folders.known = map[string]folder{}
	is("", "volume linked: its folder /links/one")
	release()
}

// A file system that hangs is queried once per scan, and costs no volume on another one its place. A late answer counts
// from then on.
func TestFoldersOnAHungMount(t *testing.T) {
	f, queried, hangs := newFolders(""), make(chan string, 100), make(chan struct{})
	f.calls = untrusted.NewCalls(20*time.Millisecond, folderHanging)
	f.find = func(_, path string) (folder, error) {
		queried <- path
		if within(path, "/data") {
			<-hangs
		}
		return folder{path: path + "/found"}, nil
	}
	tables := read(t, others(t))
	for range 3 {
		f.begin(nil)
		for i := range 20 {
			path := fmt.Sprint("/data/", i)
			if at, _, err := f.locate(Identity{Directory: path}, tables); !errors.Is(err, untrusted.ErrUnanswered) {
				t.Errorf("%s: %+v, %v", path, at, err)
			}
			if at, _, err := f.locate(Identity{Directory: path, elsewhere: true}, tables); err != nil || at.Directory != path {
				t.Errorf("%s of another node: %+v, %v", path, at, err)
			}
		}
		if at, _, err := f.locate(Identity{Directory: "/srv/one"}, tables); err != nil || at.Directory != "/srv/one/found" {
			t.Errorf("/srv/one: %+v, %v", at, err)
		}
	}
	if n := len(queried); n != 1+3 {
		t.Errorf("queried %d times, want once for the mount that hangs, and three times for the other one", n)
	}
	close(hangs)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		f.begin([]Identity{{Directory: "/data/0"}})
		at, _, err := f.locate(Identity{Directory: "/data/0"}, tables)
		if err == nil && at.Directory != "/data/0/found" {
			err = fmt.Errorf("it leads to %s", at.Directory)
		}
		return err
	})
}

// All folders of a scan together have a timeout, even if each of them is just in time.
func TestFoldersTogether(t *testing.T) {
	f, queried := newFolders(""), 0
	f.find = func(_, path string) (folder, error) {
		queried++
		f.began = f.began.Add(-foldersTimeout / 2)
		return folder{path: path}, nil
	}
	tables := read(t, others(t))
	f.begin(nil)
	for i := range 10 {
		f.locate(Identity{Directory: fmt.Sprint("/srv/", i)}, tables)
	}
	if queried > 3 {
		t.Errorf("%d folders were queried in twice the time", queried)
	}
}
