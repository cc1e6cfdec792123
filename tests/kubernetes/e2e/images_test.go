//go:build e2e

package e2e

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

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
	n.load("e2e/mariadb:latest", n.mariadb(maps.Clone(busybox)), "/")
	n.loadLonghorn()
}

// The operator's image is pulled unless it is there, as its tag is not "latest"; PostgreSQL's must
// be named by its version.
const (
	cloudnativePGImage = "e2e/cloudnative-pg:local"
	postgresqlImage    = "e2e/postgresql:15"
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

// mariadb is the machine's own MariaDB in the place of Percona Server, which is in no registry
// that can be reached: it obeys the same environment. Its data directory is made here.
func (n *node) mariadb(files map[string]string) *images.Dockerfile {
	n.t.Helper()
	program := testkit.Tool(n.t, "mariadbd")
	data := n.path("mariadb")
	n.run(testkit.Tool(n.t, "mariadb-install-db"), "--no-defaults", "--user=root", "--datadir="+data, "--auth-root-authentication-method=normal", "--skip-test-db")
	for root, at := range map[string]string{data: "/empty", "/usr/share/mysql": "/usr/share/mysql"} {
		n.must(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				files[at+strings.TrimPrefix(path, root)] = path
			}
			return err
		}))
	}
	files["/usr/sbin/mariadbd"] = program
	addLibraries(files, program)
	passwd := n.path("etc", "passwd-mariadb")
	n.must(os.WriteFile(passwd, []byte("root:x:0:0::/:/bin/sh\nmysql:x:1001:1001::/:/bin/sh\n"), 0o644))
	files["/etc/passwd"] = passwd
	n.write("etc/start-mariadb", `#!/bin/sh
set -e
cd /var/lib/mysql
test -d mysql || cp -r /empty/. .
cat >/var/lib/mysql/init.sql <<END
CREATE DATABASE IF NOT EXISTS $MYSQL_DATABASE;
CREATE USER IF NOT EXISTS '$MYSQL_USER'@'%' IDENTIFIED BY '$MYSQL_PASSWORD';
GRANT ALL ON $MYSQL_DATABASE.* TO '$MYSQL_USER'@'%';
END
exec /usr/sbin/mariadbd --no-defaults --datadir=/var/lib/mysql --socket=/var/lib/mysql/sock --init-file=/var/lib/mysql/init.sql --tmpdir=/var/lib/mysql "$@"
`)
	n.must(os.Chmod(n.path("etc", "start-mariadb"), 0o755))
	files["/bin/start"] = n.path("etc", "start-mariadb")
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
	n.run("ctr", "--address="+n.path("containerd.sock"), "--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs", file)
}
