//go:build e2e

package e2e

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/plumbline/plumbline/manifests/images"
	"github.com/plumbline/plumbline/tests/testkit"
)

// ourImages are Plumbline's own, by the names of their Dockerfiles.
var ourImages = []string{"agent", "blockio", "longhorn-exporter", "openebs-exporter", "loadgen"}

// loadImages makes all images that the system needs and hands them to containerd.
func (n *node) loadImages() {
	n.t.Helper()
	for _, image := range ourImages {
		d, err := images.Read(filepath.Join(testkit.Root(), "manifests", "images", image+".Dockerfile"), runtime.GOARCH)
		n.must(err)
		n.load("plumbline/"+image+":latest", d, testkit.Root())
	}
	for _, program := range []string{"prometheus-operator", "prometheus-config-reloader", "local-path-provisioner", "prometheus-kubernetes"} {
		file, err := filepath.EvalSymlinks(testkit.Tool(n.t, program))
		n.must(err)
		n.load("e2e/"+program+":latest", &images.Dockerfile{Files: map[string]string{"/bin/" + program: file}, User: "65534:65534", Entrypoint: []string{"/bin/" + program}}, "/")
	}
	busybox := map[string]string{}
	for _, applet := range []string{"busybox", "sh", "sleep", "mkdir", "rm", "chmod", "id"} {
		busybox["/bin/"+applet] = testkit.Tool(n.t, "busybox")
	}
	n.load("e2e/busybox:latest", &images.Dockerfile{Files: busybox, Entrypoint: []string{"/bin/sh"}}, "/")
	n.load("e2e/pause:latest", &images.Dockerfile{Files: busybox, Entrypoint: []string{"/bin/sleep", "2147483647"}}, "/")
	n.load("e2e/postgresql:latest", n.postgresql(busybox), "/")
}

// postgresql is the machine's own PostgreSQL, with what it links.
func (n *node) postgresql(files map[string]string) *images.Dockerfile {
	n.t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		testkit.Skip(n.t, "needs PostgreSQL's server")
	}
	program := found[len(found)-1]
	home := filepath.Dir(filepath.Dir(program))
	share := filepath.Join("/usr/share/postgresql", filepath.Base(home))
	for _, root := range []string{home, share, "/usr/share/zoneinfo/Etc"} {
		n.must(filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if info, statErr := os.Stat(path); err == nil && statErr == nil && info.Mode().IsRegular() && !strings.Contains(path, "/bitcode/") && !strings.Contains(path, "llvmjit") {
				files[path] = path
			}
			return err
		}))
	}
	libraries := regexp.MustCompile(`(/\S+)`)
	for _, linked := range []string{program, home + "/bin/initdb", home + "/bin/psql", home + "/lib/libpqwalreceiver.so"} {
		output, err := exec.Command("ldd", linked).Output()
		n.must(err)
		for _, library := range libraries.FindAllString(string(output), -1) {
			files[library] = library
		}
	}
	passwd := n.path("etc", "passwd")
	n.must(os.WriteFile(passwd, []byte("root:x:0:0::/:/bin/sh\npostgres:x:999:999::/:/bin/sh\n"), 0o644))
	files["/etc/passwd"] = passwd
	n.write("etc/start", `#!/bin/sh
set -e
export PATH=`+home+`/bin:/bin
if [ ! -s /data/pgdata/PG_VERSION ]; then
    initdb --pgdata=/data/pgdata --auth=trust --username=postgres --encoding=UTF8 --locale=C --data-checksums
    echo 'host all all all trust' >>/data/pgdata/pg_hba.conf
fi
exec postgres -D /data/pgdata -c cluster_name=shop -c 'listen_addresses=*' -c unix_socket_directories=/tmp
`)
	files["/bin/start"] = n.path("etc", "start")
	n.must(os.Chmod(n.path("etc", "start"), 0o755))
	return &images.Dockerfile{Files: files, User: "999:999", Entrypoint: []string{"/bin/start"}}
}

func (n *node) load(tag string, d *images.Dockerfile, context string) {
	n.t.Helper()
	image, err := d.Image(context, runtime.GOARCH)
	n.must(err)
	reference, err := name.NewTag(tag)
	n.must(err)
	file := n.path("image.tar")
	n.must(tarball.WriteToFile(file, reference, image))
	defer os.Remove(file)
	n.run("ctr", "--address="+n.path("containerd.sock"), "--namespace=k8s.io", "images", "import", "--snapshotter=overlayfs", file)
}
