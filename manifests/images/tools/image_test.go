package main

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/plumbline/plumbline/manifests/images/debian"
	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/testkit/toolsimage"
)

// The image of this machine's packages: its bytes, what is in it, and whether its programs run.
func TestImage(t *testing.T) {
	checkout := toolsimage.Checkout(t)
	image := toolsimage.Image(t, checkout)
	t.Run("the same packages make the same bytes", func(t *testing.T) {
		// The same files again at another time, with other modes that mean the same.
		folder := filepath.Join(checkout, "build", "linux", runtime.GOARCH, "loadgen-tools")
		c, err := take("/", runtime.GOARCH)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Write(folder); err != nil {
			t.Fatal(err)
		}
		long := time.Unix(1e9, 0)
		if err := os.Chtimes(filepath.Join(folder, "usr/bin/fio"), long, long); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(filepath.Join(folder, "usr/bin/fio"), 0o700|fs.ModeSetuid); err != nil {
			t.Fatal(err)
		}
		if one, two := digest(t, image), digest(t, toolsimage.Image(t, checkout)); one != two {
			t.Errorf("%s, then %s", one, two)
		}
	})
	headers := headers(t, image)
	t.Run("content", func(t *testing.T) { checkContent(t, headers) })
	t.Run("programs", func(t *testing.T) {
		i := unpacked{toolsimage.Unpack(t, image), "/tmp", toolsimage.Command}
		checkPackages(t, i.root)
		i.checkLibraries(t)
		i.checkPrograms(t)
		i.checkConfined(t)
	})
}

// The same for arm64 on a machine of another architecture, but for loadgen and k6: of packages that are fetched as
// `make image-tools` fetches them, and with programs that an emulator runs.
func TestForeign(t *testing.T) {
	testkit.Long(t, "downloads 110 MB of Debian's packages")
	if runtime.GOARCH == "arm64" {
		t.Log("this machine's own architecture is arm64: TestImage covers all of it")
		return
	}
	emulator := testkit.Tool(t, "qemu-aarch64")
	testkit.Tool(t, "dpkg-query")
	system, root := filepath.Join(t.TempDir(), "debian"), filepath.Join(t.TempDir(), "image")
	fetch := exec.Command(filepath.Join(testkit.Root(), "tools", "sysroot"), append([]string{"--with-dependencies", "arm64", system}, packages(t)...)...)
	if output, err := fetch.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if err := run(system, "arm64", root); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if name := strings.TrimPrefix(file, root+"/"); err == nil && !entry.IsDir() && !place.MatchString(name) {
			t.Errorf("%s: no such file was expected", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	i := unpacked{root, t.TempDir(), func(root string, arguments ...string) *exec.Cmd {
		program := arguments[0]
		if !path.IsAbs(program) {
			program = "/usr/bin/" + program
		}
		// Paths that are in the root are those; all others are the machine's.
		return exec.Command(emulator, append([]string{"-L", root, filepath.Join(root, program)}, arguments[1:]...)...)
	}}
	checkPackages(t, root)
	i.checkLibraries(t)
	i.checkPrograms(t)
}

// packages are those that the Makefile has loadgen-tools made of.
func packages(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^TOOLS_PACKAGES := (.+)$`).FindSubmatch(text)
	if line == nil {
		t.Fatal("the Makefile has no TOOLS_PACKAGES")
	}
	return strings.Fields(string(line[1]))
}

// unpacked is the image's files in a folder, where its programs may write, and how they are run.
type unpacked struct {
	root, tmp string
	command   func(root string, arguments ...string) *exec.Cmd
}

// run runs a program and returns its output.
func (i unpacked) run(arguments ...string) (string, error) {
	output, err := i.command(i.root, arguments...).CombinedOutput()
	return string(output), err
}

func digest(t *testing.T, image v1.Image) string {
	t.Helper()
	d, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

func headers(t *testing.T, image v1.Image) (headers []*tar.Header) {
	t.Helper()
	stream := mutate.Extract(image)
	defer stream.Close()
	for r := tar.NewReader(stream); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return headers
		}
		if err != nil {
			t.Fatal(err)
		}
		headers = append(headers, h)
	}
}

// place are the only kinds of files of the image; what can be run by itself is in the first line.
var place = regexp.MustCompile(`^(usr/bin/(pgbench|sysbench|fio)|usr/local/bin/(loadgen|k6)|lib(64)?/ld-linux-[a-z0-9-]+\.so\.\d` +
	`|usr/lib/[a-z0-9_]+-linux-gnu/((ceph|libmariadb3/plugin)/)?[A-Za-z0-9_.+-]+\.so[0-9.]*` +
	`|usr/share/sysbench/[a-z_]+\.lua|usr/share/doc/[a-z0-9.+-]+/copyright|usr/share/common-licenses/[A-Za-z0-9.-]+` +
	`|var/lib/dpkg/status\.d/[a-z0-9.+-]+|etc/os-release)$`)

// checkContent checks that the image has files of the known kinds only, readable by everybody and writable by nobody.
func checkContent(t *testing.T, headers []*tar.Header) {
	programs := map[string]bool{}
	for _, h := range headers {
		if h.Typeflag == tar.TypeDir && h.Mode == 0o755 {
			continue
		}
		if h.Typeflag != tar.TypeReg || !place.MatchString(h.Name) || h.Mode != 0o755 && h.Mode != 0o644 {
			t.Errorf("%s: type %c, mode %o", h.Name, h.Typeflag, h.Mode)
		}
		if h.Uid != 0 || h.Gid != 0 || h.ModTime.Unix() > 0 {
			t.Errorf("%s: of %d:%d, %s", h.Name, h.Uid, h.Gid, h.ModTime)
		}
		if strings.Contains(h.Name, "/bin/") && h.Mode == 0o755 {
			programs[path.Base(h.Name)] = true
		}
	}
	if len(programs) != 5 {
		t.Errorf("programs: %v", programs)
	}
}

// checkPackages checks that each package of the image has a version, this machine's, and a licence.
func checkPackages(t *testing.T, root string) {
	files, err := os.ReadDir(filepath.Join(root, debian.StatusFolder))
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, f := range files {
		text, err := os.ReadFile(filepath.Join(root, debian.StatusFolder, f.Name()))
		if err != nil {
			t.Fatal(err)
		}
		p, err := debian.ReadStatus(text)
		if err != nil || p.Name != f.Name() {
			t.Errorf("%s: %v, of %q", f.Name(), err, p.Name)
		}
		versions[p.Name] = p.Version
		licence, err := os.ReadFile(filepath.Join(root, "usr/share/doc", p.Name, "copyright"))
		if err != nil || !strings.Contains(strings.ToLower(string(licence)), "copyright") {
			t.Errorf("%s: %v, licence %.80q", p.Name, err, licence)
		}
	}
	for _, name := range []string{"fio", "sysbench", "libpq5", "libc6", "base-files"} {
		if versions[name] == "" {
			t.Errorf("package %s is not named; there are %v", name, versions)
		}
	}
}

// checkLibraries lists the libraries that each object needs with the image's own loader: all of them are there, and no
// other.
func (i unpacked) checkLibraries(t *testing.T) {
	root := i.root
	loaders, err := filepath.Glob(filepath.Join(root, "lib*/ld-linux-*"))
	if err != nil || len(loaders) != 1 {
		t.Fatalf("%v, loaders %v", err, loaders)
	}
	loader := strings.TrimPrefix(loaders[0], root)
	plugins, err := filepath.Glob(filepath.Join(root, "usr/lib/*/libmariadb3/plugin/*.so"))
	if err != nil {
		t.Fatal(err)
	}
	needed := map[string]bool{"libgcc_s.so.1": true} // opened by the C library
	objects := []string{"/usr/bin/pgbench", "/usr/bin/sysbench", "/usr/bin/fio"}
	for _, file := range plugins {
		file = strings.TrimPrefix(file, root)
		objects = append(objects, file)
		needed[path.Base(file)] = true
	}
	for _, object := range objects {
		output, err := i.run(loader, "--list", object)
		if err != nil || strings.Contains(output, "not found") {
			t.Errorf("%s: %v\n%s", object, err, output)
		}
		for line := range strings.Lines(output) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			needed[path.Base(name)] = true
		}
	}
	var libraries []string
	err = filepath.Walk(filepath.Join(root, "usr/lib"), func(file string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			libraries = append(libraries, filepath.Base(file))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range libraries {
		if !needed[l] {
			t.Errorf("%s is needed by nothing", l)
		}
	}
	if len(libraries) < 20 {
		t.Errorf("only %d libraries", len(libraries))
	}
}

// checkPrograms runs every program that is there.
func (i unpacked) checkPrograms(t *testing.T) {
	version := func(file string) string {
		text, err := os.ReadFile(filepath.Join(i.root, debian.StatusFolder, file))
		if err != nil {
			t.Fatal(err)
		}
		p, err := debian.ReadStatus(text)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`^(\d+:)?(\d+\.\d+)`).FindStringSubmatch(p.Version)[2]
	}
	servers, err := filepath.Glob(filepath.Join(i.root, debian.StatusFolder, "postgresql-*"))
	if err != nil || len(servers) != 1 {
		t.Fatalf("%v, pgbench is of %v", err, servers)
	}
	for _, c := range []struct {
		arguments []string
		want      string
	}{
		{[]string{"pgbench", "--version"}, "pgbench (PostgreSQL) " + version(filepath.Base(servers[0]))},
		{[]string{"sysbench", "--version"}, "sysbench " + version("sysbench")},
		{[]string{"fio", "--version"}, "fio-" + version("fio")},
		{[]string{"sysbench", "cpu", "--time=0", "--events=50", "run"}, "total number of events:              50"},
		{[]string{"sysbench", "oltp_read_write", "help"}, "--table_size"},
		{[]string{"fio", "--name=wal", "--directory=" + i.tmp, "--rw=write", "--bs=8k", "--size=1m", "--fdatasync=1", "--thread", "--unlink=1"}, "issued rwts: total=0,128,0,"},
	} {
		if output, err := i.run(c.arguments...); err != nil || !strings.Contains(output, c.want) {
			t.Errorf("%v: %v, not %q:\n%s", c.arguments, err, c.want, output)
		}
	}
}

// checkConfined runs what of the programs needs more than the packages' files: the programs beside them, and what a pod
// has and has not.
func (i unpacked) checkConfined(t *testing.T) {
	if output, err := i.run("k6", "version"); err != nil || !strings.Contains(output, "k6/x/sql/driver/postgres") {
		t.Errorf("k6 has no driver for PostgreSQL: %v\n%s", err, output)
	}
	if output, err := i.run("loadgen", "--help"); err != nil || !strings.Contains(output, "pgbench") {
		t.Errorf("loadgen knows no pgbench: %v\n%s", err, output)
	}
	// The emulator has no such calls.
	if output, err := i.run("fio", "--name=aio", "--directory=/tmp", "--rw=randread", "--bs=4k", "--size=1m", "--ioengine=libaio", "--iodepth=4"); err != nil || !strings.Contains(output, "issued rwts: total=256,0,0,") {
		t.Errorf("fio reads not by libaio: %v\n%s", err, output)
	}
	// The root is read-only, and there is no shell.
	if output, err := i.run("fio", "--name=root", "--filename=/file", "--rw=write", "--size=4k"); err == nil || !strings.Contains(output, "Read-only file system") {
		t.Errorf("fio writes to the root: %v\n%s", err, output)
	}
	if output, err := i.run("sh", "-c", "true"); err == nil || !strings.Contains(output, "No such file") {
		t.Errorf("there is a shell: %v\n%s", err, output)
	}
	// A name is looked up in /etc/hosts, as a pod's.
	if err := os.WriteFile(filepath.Join(i.root, "etc/hosts"), []byte("127.0.0.1 database.test\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	output, err := i.run("pgbench", "--time=1", "host=database.test port="+strings.TrimPrefix(testkit.FreeAddress(t), "127.0.0.1:")+" user=x dbname=x")
	if err == nil || !strings.Contains(output, `"database.test" (127.0.0.1)`) {
		t.Errorf("pgbench does not find a host by its name: %v\n%s", err, output)
	}
}
