//go:build e2e

package e2e

import (
	"debug/elf"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/plumbline/plumbline/manifests/images"
	"github.com/plumbline/plumbline/tests/testkit"
)

// ourImages are Plumbline's own, by the names of their Dockerfiles.
var ourImages = []string{"agent", "blockio", "longhorn-exporter", "openebs-exporter", "loadgen", "loadgen-tools", "kubectl-plumbline"}

// ourRegistry and ourTag are where the charts find our images: on the node itself.
const ourRegistry, ourTag = "plumbline", "e2e"

func ourImage(name string) string { return ourRegistry + "/" + name + ":" + ourTag }

// loadImages makes all images that the system needs and hands them to containerd.
func (n *node) loadImages() {
	n.t.Helper()
	for _, image := range ourImages {
		d, err := images.Read(filepath.Join(testkit.Root(), "manifests", "images", image+".Dockerfile"), runtime.GOARCH)
		n.must(err)
		n.load(ourImage(image), d, testkit.Root())
	}
	for _, program := range []string{"prometheus-operator", "prometheus-config-reloader", "local-path-provisioner", "prometheus-kubernetes",
		"alertmanager", "node_exporter", "mysqld_exporter"} {
		file, err := filepath.EvalSymlinks(testkit.Tool(n.t, program))
		n.must(err)
		n.load("e2e/"+program+":latest", &images.Dockerfile{Files: map[string]string{"/bin/" + program: file}, User: "65534:65534", Entrypoint: []string{"/bin/" + program}}, "/")
	}
	busybox := map[string]string{}
	for _, applet := range []string{"busybox", "sh", "sleep", "mkdir", "rm", "chmod", "id", "cp", "cat", "test"} {
		busybox["/bin/"+applet] = testkit.Tool(n.t, "busybox")
	}
	n.load("e2e/busybox:latest", &images.Dockerfile{Files: busybox, Entrypoint: []string{"/bin/sh"}}, "/")
	n.load("e2e/pause:latest", &images.Dockerfile{Files: busybox, Entrypoint: []string{"/bin/sleep", "2147483647"}}, "/")
	manager, err := filepath.EvalSymlinks(testkit.Tool(n.t, "cloudnative-pg"))
	n.must(err)
	// The operator looks in /bin for what it copies into the databases' pods, by architecture.
	n.load(cloudnativePGImage, &images.Dockerfile{Files: map[string]string{"/manager": manager, "/bin/manager_" + runtime.GOARCH: manager},
		User: "10001:10001", Entrypoint: []string{"/manager"}}, "/")
	n.load(postgresqlImage, n.postgresql(maps.Clone(busybox)), "/", "PATH="+postgresqlHome()+"/bin:/bin")
	n.load(mysqlImage, n.mysql(maps.Clone(busybox)), "/")
	n.loadLonghorn()
}

// The operator's image is pulled unless it is there, as its tag is not "latest"; PostgreSQL's must
// be named by its version.
const (
	cloudnativePGImage = "e2e/cloudnative-pg:local"
	postgresqlImage    = "e2e/postgresql:15"
	mysqlImage         = "e2e/mysql:latest"
)

// postgresqlHome is the folder of the machine's newest PostgreSQL; "" if there is none.
func postgresqlHome() string {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		return ""
	}
	return filepath.Dir(filepath.Dir(found[len(found)-1]))
}

// postgresql is the machine's own PostgreSQL, with what it links.
func (n *node) postgresql(files map[string]string) *images.Dockerfile {
	n.t.Helper()
	home := postgresqlHome()
	if home == "" {
		testkit.Skip(n.t, "needs PostgreSQL's server")
	}
	share := filepath.Join("/usr/share/postgresql", filepath.Base(home))
	for _, root := range []string{home, share, "/usr/share/zoneinfo/Etc"} {
		n.must(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			info, statErr := os.Stat(path)
			if err != nil || statErr != nil || !info.Mode().IsRegular() || strings.Contains(path, "/bitcode/") || strings.Contains(path, "llvmjit") {
				return err
			}
			files[path] = path
			if filepath.Dir(path) != home+"/bin" && !strings.HasSuffix(path, "/libpqwalreceiver.so") {
				return nil
			}
			addLibraries(files, path)
			return nil
		}))
	}
	passwd := n.path("etc", "passwd")
	n.must(os.WriteFile(passwd, []byte("root:x:0:0::/:/bin/sh\npostgres:x:26:26::/:/bin/sh\n"), 0o644))
	files["/etc/passwd"] = passwd
	return &images.Dockerfile{Files: files, User: "26:26", Entrypoint: []string{"/bin/sh"}}
}

var library = regexp.MustCompile(`/\S+`)

// addLibraries adds what a program links; a script links nothing.
func addLibraries(files map[string]string, program string) {
	linked, _ := exec.Command("ldd", program).Output()
	for _, file := range library.FindAllString(string(linked), -1) {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			files[file] = file
		}
	}
}

// mysql is MySQL's own server in the place of Percona Server, whose image is in no package registry: it obeys the same environment.
func (n *node) mysql(files map[string]string) *images.Dockerfile {
	n.t.Helper()
	root, err := filepath.EvalSymlinks(filepath.Join(testkit.Root(), "build", "mysql"))
	n.must(err)
	n.must(filepath.WalkDir(filepath.Join(root, "usr/share/mysql"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files[strings.TrimPrefix(path, root)] = path
		}
		return err
	}))
	const program = "/usr/sbin/mysqld"
	files[program] = filepath.Join(root, program)
	// Its libraries are newer than the machine's.
	file, err := elf.Open(filepath.Join(root, program))
	n.must(err)
	defer file.Close()
	loader, err := io.ReadAll(file.Section(".interp").Open())
	n.must(err)
	list := exec.Command(strings.TrimRight(string(loader), "\x00"), "--list", program)
	list.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	linked, err := list.Output()
	n.must(err)
	for _, path := range library.FindAllString(string(linked), -1) {
		files[filepath.Clean(path)] = filepath.Join(root, path)
	}
	n.write("etc/passwd-mysql", "root:x:0:0::/:/bin/sh\nmysql:x:1001:1001::/:/bin/sh\n")
	files["/etc/passwd"] = n.path("etc", "passwd-mysql")
	n.write("etc/start-mysql", `#!/bin/sh
set -e
cd /var/lib/mysql
mysqld="/usr/sbin/mysqld --no-defaults --datadir=/var/lib/mysql/data --tmpdir=/var/lib/mysql --secure-file-priv=NULL"
test -d data/mysql || $mysqld --initialize-insecure
cat >init.sql <<END
CREATE DATABASE IF NOT EXISTS $MYSQL_DATABASE;
CREATE USER IF NOT EXISTS '$MYSQL_USER'@'%' IDENTIFIED BY '$MYSQL_PASSWORD';
GRANT ALL ON $MYSQL_DATABASE.* TO '$MYSQL_USER'@'%';
END
exec $mysqld --socket=/var/lib/mysql/sock --pid-file=/var/lib/mysql/pid --mysqlx=OFF --init-file=/var/lib/mysql/init.sql "$@"
`)
	n.must(os.Chmod(n.path("etc", "start-mysql"), 0o755))
	files["/bin/start"] = n.path("etc", "start-mysql")
	return &images.Dockerfile{Files: files, User: "1001:1001", Entrypoint: []string{"/bin/start"}}
}

// load makes an image, with variables of the environment, and hands it to containerd.
func (n *node) load(tag string, d *images.Dockerfile, context string, environment ...string) {
	n.t.Helper()
	image, err := d.Image(context, runtime.GOARCH)
	n.must(err)
	config, err := image.ConfigFile()
	n.must(err)
	config.Config.Env = environment
	image, err = mutate.Config(image, config.Config)
	n.must(err)
	reference, err := name.NewTag(tag)
	n.must(err)
	file := n.path("image.tar")
	n.must(tarball.WriteToFile(file, reference, image))
	defer os.Remove(file)
	for _, folder := range n.nodeFolders() {
		n.run("ctr", "--address="+filepath.Join(folder, "containerd.sock"), "--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs", file)
	}
}
