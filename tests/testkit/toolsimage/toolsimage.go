// Package toolsimage makes the image loadgen-tools of this machine's packages for tests, and runs
// programs in it as a pod does.
package toolsimage

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/plumbline/plumbline/manifests/images"
	"github.com/plumbline/plumbline/tests/testkit"
)

// packaged are the programs that are out of Debian's packages.
var packaged = []string{"pgbench", "sysbench", "fio", "dpkg-query"}

// Checkout puts what the image is made of into a folder that serves as the checkout's root. It skips on a machine that
// lacks a program.
func Checkout(t testing.TB) string {
	t.Helper()
	for _, program := range packaged {
		testkit.Tool(t, program)
	}
	k6, err := os.ReadFile(testkit.Tool(t, "k6"))
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	folder := filepath.Join(root, "build", "linux", runtime.GOARCH)
	run(t, "go", "run", "./manifests/images/tools", "--out="+filepath.Join(folder, "loadgen-tools"))
	run(t, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(folder, "loadgen"), "./loadgen")
	if err := os.WriteFile(filepath.Join(folder, "k6"), k6, 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}

func run(t testing.TB, program string, arguments ...string) {
	t.Helper()
	cmd := exec.Command(program, arguments...)
	cmd.Dir = testkit.Root()
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", program, arguments, err, text)
	}
}

// Dockerfile is the image's.
func Dockerfile(t testing.TB) *images.Dockerfile {
	t.Helper()
	d, err := images.Read(filepath.Join(testkit.Root(), "manifests", "images", "loadgen-tools.Dockerfile"), runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// Image makes the image of what Checkout made.
func Image(t testing.TB, checkout string) v1.Image {
	t.Helper()
	image, err := Dockerfile(t).Image(checkout, runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

// Unpack puts an image's layers into a folder, with the mount points that a container's runtime
// makes.
func Unpack(t testing.TB, image v1.Image) string {
	t.Helper()
	testkit.NeedRoot(t)
	root := t.TempDir()
	stream := mutate.Extract(image)
	defer stream.Close()
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = unpack(root, h, r)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{root, filepath.Dir(root)} { // others' users pass through
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, point := range []string{"dev", "proc", "tmp"} {
		if err := os.Mkdir(filepath.Join(root, point), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func unpack(root string, h *tar.Header, r io.Reader) error {
	file := filepath.Join(root, h.Name)
	mode := fs.FileMode(h.Mode) & fs.ModePerm
	if h.Typeflag == tar.TypeDir {
		return os.MkdirAll(file, mode)
	}
	if h.Typeflag != tar.TypeReg {
		return errors.New(h.Name + ": neither file nor folder")
	}
	w, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, r)
	return errors.Join(err, w.Close())
}

// enter makes what a pod of manifests/bench finds: the image read-only, with the
// machine's devices and processes and an empty /tmp; no user but 65532, and no way to another.
// The mounts are seen by the program alone and end with it.
const enter = `root=$1; shift
mount --bind "$root" "$root"
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -o remount,bind,ro "$root"
cd /
exec setpriv --no-new-privs chroot --userspec=65532:65532 --groups= "$root" "$@"`

// Command is a program in an unpacked image, as a pod runs it.
func Command(root string, arguments ...string) *exec.Cmd {
	cmd := exec.Command("unshare", append([]string{"--mount", "--propagation=private", "sh", "-euc", enter, "sh", root}, arguments...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	return cmd
}
