//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/manifests/images"
	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/manifests/lab/damage"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Longhorn's manager, instance manager, engine, replicas and CSI driver are the real ones. The kernel has no iSCSI: instead of tgtd and
// iscsiadm, tests/kubernetes/iscsi attaches a volume as a loop device over a FUSE file. Whatever is measured here is measured of that.

// longhornClasses are the classes of Longhorn's V1 engine: with one replica, and with three.
var longhornClasses = []string{"longhorn-r1", "longhorn-r3"}

// LonghornImage has all of Longhorn's own programs.
func (n *node) LonghornImage() string { return "e2e/longhorn:local" }

// otherLonghornImage has an engine of another commit, as far as Longhorn knows.
const otherLonghornImage = "e2e/longhorn:other"

// buildShims builds what attaches Longhorn's volumes.
func (n *node) buildShims() {
	n.t.Helper()
	for shim, folder := range map[string]string{"iscsiadm": "tests/kubernetes/iscsi", "longhorn-bridge": "manifests/lab/longhorn-bridge"} {
		n.run("go", "-C", testkit.Root(), "build", "-o", n.path("bin", shim), "./"+folder)
	}
}

// longhornHost gives the node what Longhorn finds on a host: iscsiadm, a folder for its replicas that is no overlay, a /dev/longhorn
// and a /sys/block that may be written to and are the node's own.
func (n *node) longhornHost() {
	n.t.Helper()
	for shim, at := range map[string]string{"iscsiadm": "/usr/local/sbin", "longhorn-bridge": "/usr/local/bin"} {
		n.run("cp", n.path("bin", shim), at)
	}
	n.must(os.MkdirAll("/usr/lib/modules", 0o755))
	n.must(os.MkdirAll("/var/lib/longhorn", 0o700))
	n.run("mount", "--bind", n.path("longhorn"), "/var/lib/longhorn")
	// The folder itself is on the machine's devtmpfs.
	n.must(os.MkdirAll("/dev/longhorn", 0o755))
	n.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/dev/longhorn")
	disks, err := os.ReadDir("/sys/block")
	n.must(err)
	links := map[string]string{}
	for _, d := range disks {
		links[d.Name()], err = os.Readlink(filepath.Join("/sys/block", d.Name()))
		n.must(err)
	}
	n.run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/sys/block")
	for name, to := range links {
		n.must(os.Symlink(to, filepath.Join("/sys/block", name)))
	}
}

// ofLonghorn are the machine's programs that Longhorn's call by name, in their images.
var ofLonghorn = []string{"bash", "dash", "cp", "rm", "ls", "cat", "mkdir", "rmdir", "sleep", "tee", "basename", "dirname", "seq", "stat", "touch", "mktemp",
	"mv", "ln", "chmod", "chown", "true", "false", "env", "echo", "head", "tail", "wc", "diff", "grep", "sed", "awk", "ps", "nsenter", "mount", "umount", "findmnt",
	"mountpoint", "lsblk", "blkid", "blockdev", "losetup", "mke2fs", "tune2fs", "e2fsck", "fsck", "resize2fs", "dumpe2fs", "fstrim", "kmod", "curl", "ip",
	"setsid", "df", "sync", "dd", "timeout", "readlink", "date", "id", "cut", "tr", "sort", "find", "xargs"}

// loadLonghorn makes the images of Longhorn and its sidecars.
func (n *node) loadLonghorn() {
	n.t.Helper()
	files := map[string]string{}
	add := func(program string, at ...string) {
		source, err := filepath.EvalSymlinks(program)
		n.must(err)
		for _, path := range at {
			files[path] = source
		}
		addLibraries(files, source)
	}
	for _, program := range ofLonghorn {
		add(testkit.Tool(n.t, program), "/usr/bin/"+program)
	}
	add(testkit.Tool(n.t, "dash"), "/bin/sh")
	add(testkit.Tool(n.t, "bash"), "/bin/bash")
	add(testkit.Tool(n.t, "mke2fs"), "/usr/sbin/mkfs.ext4")
	add(testkit.Tool(n.t, "e2fsck"), "/usr/sbin/fsck.ext4")
	// BusyBox' own nc has no -z, which the instance manager's probe uses.
	add("/bin/nc.openbsd", "/usr/bin/nc")
	add("/usr/bin/tini-static", "/tini")
	add(testkit.Tool(n.t, "longhorn-manager"), "/usr/local/sbin/longhorn-manager")
	add(testkit.Tool(n.t, "longhorn-instance-manager"), "/usr/local/bin/longhorn-instance-manager")
	add(testkit.Tool(n.t, "grpc-health-probe"), "/usr/local/bin/grpc_health_probe")
	add(n.path("bin", "iscsiadm"), "/usr/sbin/tgtd", "/usr/sbin/tgtadm", "/usr/sbin/sg_raw") // one program has the four names
	files["/etc/mke2fs.conf"] = "/etc/mke2fs.conf"
	for _, script := range []struct{ module, file, at string }{
		{"longhorn-manager", "package/nsmounter", "/usr/local/sbin/nsmounter"},
		{"longhorn-manager", "package/launch-manager", "/usr/local/sbin/launch-manager"},
		{"longhorn-instance-manager", "package/instance-manager", "/usr/local/bin/instance-manager"},
	} {
		files[script.at] = n.script(script.module, script.file)
	}
	n.must(os.WriteFile(n.path("etc", "passwd-longhorn"), []byte("root:x:0:0::/root:/bin/bash\n"), 0o644))
	n.must(os.WriteFile(n.path("etc", "group-longhorn"), []byte("root:x:0:\ndisk:x:6:\n"), 0o644))
	n.must(os.WriteFile(n.path("etc", "empty"), nil, 0o644))
	files["/etc/passwd"], files["/etc/group"] = n.path("etc", "passwd-longhorn"), n.path("etc", "group-longhorn")
	for _, folder := range []string{"/tmp", "/var/run", "/var/log", "/var/tmp", "/lib/modules", "/root"} {
		files[folder+"/.keep"] = n.path("etc", "empty")
	}
	const path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	for tag, engine := range map[string]string{n.LonghornImage(): "longhorn-engine", otherLonghornImage: "longhorn-engine-rebuilt"} {
		add(testkit.Tool(n.t, engine), "/usr/local/bin/longhorn")
		n.load(tag, &images.Dockerfile{Files: files, Entrypoint: []string{"/tini", "--"}}, "/", path)
	}

	busybox := testkit.Tool(n.t, "busybox")
	for name, program := range map[string]string{"csi-attacher": "csi-attacher", "csi-provisioner": "csi-provisioner", "csi-resizer": "csi-resizer",
		"csi-snapshotter": "csi-snapshotter", "node-driver-registrar": "csi-sidecar", "livenessprobe": "csi-sidecar"} {
		source, err := filepath.EvalSymlinks(testkit.Tool(n.t, program))
		n.must(err)
		n.load("e2e/"+name+":local", &images.Dockerfile{Entrypoint: []string{"/bin/" + name}, Files: map[string]string{"/bin/" + name: source, "/bin/sh": busybox,
			"/bin/rm": busybox}}, "/", path)
	}
}

// script returns a script of a module that tools/ pins, executable: a module has no modes of files.
func (n *node) script(module, file string) string {
	n.t.Helper()
	folder, err := kubetest.Module(module)
	n.must(err)
	text, err := os.ReadFile(filepath.Join(folder, file))
	n.must(err)
	copied := n.path("bin", filepath.Base(file))
	n.must(os.WriteFile(copied, text, 0o755))
	return copied
}

// installLonghorn installs Longhorn and the storage classes of the examples, and waits until volumes can be had.
func (n *node) installLonghorn() {
	n.t.Helper()
	text, err := os.ReadFile("longhorn.yaml")
	n.must(err)
	n.write("etc/longhorn.yaml", string(text))
	n.kubectl("apply", "--server-side", "-f", n.path("etc", "longhorn.yaml"))
	n.kubectl("rollout", "status", "daemonset/longhorn-manager", "--namespace=longhorn-system", "--timeout=10m")
	n.kubectl("rollout", "status", "deployment/longhorn-driver-deployer", "--namespace=longhorn-system", "--timeout=10m")
	n.kubectl("wait", "--for=create", "csidriver/driver.longhorn.io", "--timeout=10m")
	for _, object := range []string{"daemonset/longhorn-csi-plugin", "deployment/csi-attacher", "deployment/csi-provisioner", "deployment/csi-resizer", "deployment/csi-snapshotter"} {
		n.kubectl("wait", "--for=create", object, "--namespace=longhorn-system", "--timeout=5m")
		n.kubectl("rollout", "status", object, "--namespace=longhorn-system", "--timeout=10m")
	}
	// It has no instance manager on a node that takes no pods.
	n.schedule()
	n.kubectl("wait", "--for=jsonpath={.status.state}=deployed", "engineimages.longhorn.io", "--all", "--namespace=longhorn-system", "--timeout=5m")
	n.kubectl("wait", "--for=jsonpath={.status.currentState}=running", "instancemanagers.longhorn.io", "--all", "--namespace=longhorn-system", "--timeout=5m")
	for _, class := range longhornClasses {
		n.kubectl("apply", "--server-side", "-f", filepath.Join(testkit.Root(), "manifests", "examples", "storage-classes", class+".yaml"))
	}
}

// longhornVolume is a volume of Longhorn's with its replicas' names.
type longhornVolume struct {
	class, server, claim, volume string
	replicas                     []string
}

// longhornDatabases installs a bench on each class, and returns their volumes.
func (n *node) longhornDatabases() []longhornVolume {
	n.t.Helper()
	for _, class := range longhornClasses {
		n.installBench(class)
	}
	var all []longhornVolume
	for _, class := range longhornClasses {
		n.awaitPostgreSQL(class)
		all = append(all, n.longhornVolume(class, "postgresql-"+class+"-1"))
	}
	return all
}

// longhornVolume is the volume of a claim of a class's database, whose pod has the same name.
func (n *node) longhornVolume(class, claim string) longhornVolume {
	n.t.Helper()
	v := longhornVolume{class: class, server: "db-" + class + "/" + claim, claim: claim, volume: n.volumeOf("db-"+class, claim)}
	v.replicas = strings.Fields(n.kubectl("get", "replicas.longhorn.io", "--namespace=longhorn-system", "--selector=longhornvolume="+v.volume, "--output=jsonpath={.items[*].metadata.name}"))
	if got := fmt.Sprint("longhorn-r", len(v.replicas)); got != class {
		n.t.Errorf("the volume of %s has the replicas %v", class, v.replicas)
	}
	return v
}

// followLonghorn checks the path of a query down to each replica, by Longhorn's own names.
func (n *node) followLonghorn(v longhornVolume) {
	n.t.Helper()
	labels := fmt.Sprintf(`volume=%q`, v.volume)
	expressions := []string{
		fmt.Sprintf(`server:volume:info{server=%q, namespace="db-%s", persistentvolumeclaim=%q, storageclass=%q, %s}`, v.server, v.class, v.claim, v.class, labels),
		fmt.Sprintf(`plumbline_longhorn_volume_info{%s, persistentvolumeclaim=%q}`, labels, v.claim),
		fmt.Sprintf(`plumbline_longhorn_volume_robustness{%s, robustness="healthy"} == 1`, labels),
		fmt.Sprintf(`volume:block_write_seconds:mean5m{%s} > 0`, labels),
	}
	for _, replica := range v.replicas {
		for _, metric := range []string{`plumbline_longhorn_replica_up{%s} == 1`, `replica:write_seconds:mean5m{source="wire", %s} > 0`, `replica:write_service_seconds:mean5m{source="wire", %s} > 0`,
			`replica:disk:info{node="` + n.nodeOf(replica) + `", %s}`} {
			expressions = append(expressions, fmt.Sprintf(metric, fmt.Sprintf("%s, replica=%q", labels, replica)))
		}
	}
	for _, expression := range expressions {
		testkit.Eventually(n.t, defaultTimeout, n.some(expression))
	}
	n.keepLine("longhorn.txt", "%s", n.plumbline("why", "--namespace=db-"+v.class, v.claim))
}

// nodeOf returns the node that a replica is on.
func (n *node) nodeOf(replica string) string {
	n.t.Helper()
	return n.kubectl("get", "replicas.longhorn.io/"+replica, "--namespace=longhorn-system", "--output=jsonpath={.spec.nodeID}")
}

// replicaProcess returns the process of a replica: its folder is on the node by the name that the instance manager started it with.
func (n *node) replicaProcess(replica string) int {
	n.t.Helper()
	folder := n.kubectl("get", "replicas.longhorn.io/"+replica, "--namespace=longhorn-system", "--output=jsonpath={.spec.dataDirectoryName}")
	pid := n.longhornProcess(func(words []string) bool {
		return slices.Contains(words, "replica") && slices.ContainsFunc(words, func(w string) bool { return strings.HasSuffix(w, "/replicas/"+folder) })
	})
	if pid == 0 {
		n.t.Fatalf("no process of replica %s, whose folder is %s", replica, folder)
	}
	return pid
}

// longhornProcess returns a process of Longhorn's engine whose arguments are those wanted, 0 if there is none.
func (n *node) longhornProcess(wanted func(words []string) bool) int {
	n.t.Helper()
	pids, err := untrusted.Processes("/proc")
	n.must(err)
	for _, pid := range pids {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if words := strings.Split(string(text), "\x00"); filepath.Base(words[0]) == "longhorn" && wanted(words) {
			return pid
		}
	}
	return 0
}

// slowReplica stops a replica's process for half of the time until the verdict, kubectl plumbline why and an event on the claim name it. It
// returns a check of the event that ends this, which takes minutes.
func (n *node) slowReplica(v longhornVolume) (recovered func()) {
	n.t.Helper()
	slow := v.replicas[1]
	began := time.Now()
	mend := damage.Halve(context.Background(), n.replicaProcess(slow))
	mended := false
	defer func() {
		if !mended {
			n.must(mend())
		}
	}()
	testkit.Eventually(n.t, 2*defaultTimeout, n.some(fmt.Sprintf(`volume:verdict:confidence{volume=%q, reason="replica", replica=%q}`, v.volume, slow)))
	n.keepLine("longhorn.txt", "a replica of %s stopped for half of the time: named after %.0f s", v.class, time.Since(began).Seconds())
	testkit.Eventually(n.t, defaultTimeout, n.none(fmt.Sprintf(`volume:verdict:confidence{volume=%q, reason="replica", replica!=%q}`, v.volume, slow)))
	n.keepLine("longhorn.txt", "%s", n.plumbline("why", "--namespace=db-"+v.class, v.claim))
	n.agree("db-"+v.class, v.claim, []answer.Culprit{{Reason: why.SlowReplica, Replica: slow}}, "--break-down")
	events := func(reason string) func() error {
		return func() error {
			events, err := n.events(v.class, v.claim)
			if err != nil {
				return err
			}
			for line := range strings.Lines(events) {
				if strings.Contains(line, reason) && strings.Contains(line, slow) {
					n.keepLine("longhorn.txt", "after %.0f s: %s", time.Since(began).Seconds(), strings.TrimSpace(line))
					return nil
				}
			}
			return fmt.Errorf("no event %s of %s on %s:\n%s", reason, slow, v.claim, events)
		}
	}
	testkit.Eventually(n.t, 3*defaultTimeout, events("ReplicaSlow"))
	mended = true
	n.must(mend())
	return func() { testkit.Eventually(n.t, 3*defaultTimeout, events("ReplicaRecovered")) }
}

// forLayers makes runs long enough for their layers.
const forLayers = "--min-duration=16s"

// publications are experiments on Longhorn beside the control, with their charts' values. Only one of them has the time for layers.
var publications = map[string]string{
	"dalibo": `
classes: [` + control + `, longhorn-r1, longhorn-r3]
postgresql:` + smallPostgreSQL + `
  storage: {size: 2Gi}
matrix: {repeat: 4, scale: 0.02, volumeSize: 2Gi, extraArgs: [--max-warmup=2s]}
`,
	"mayastor": `
classes: [` + control + `, longhorn-r3]
mysql:` + smallMySQL + `
  storage: {size: 2Gi}
matrix: {repeat: 4, scale: 0.001, extraArgs: [--max-warmup=2s, ` + forLayers + `, --step=sysbench 10 threads]}
`,
}

// publish runs an experiment: each run has a result, and its layers if it is long enough, and the classes of Longhorn are slower than the control.
func (n *node) publish(name string) {
	n.t.Helper()
	report := n.experiment(name, publications[name], 40*time.Minute)
	if done, planned, ok := report.Interrupted(); ok {
		n.t.Fatalf("of %d runs planned %d are done", planned, done)
	}
	for _, row := range report.Rows {
		if row.Result == nil && len(row.Phases) == 0 { // an initialisation has phases
			n.t.Errorf("%s, round %d on %s failed: %s", row.Step, row.Round, row.StorageClass, row.Error)
		}
		if strings.Contains(publications[name], forLayers) && row.Result != nil && row.Layers == nil && row.NoLayers != matrix.NoLayersOfReads {
			n.t.Errorf("%s, round %d on %s has no layers: %s", row.Step, row.Round, row.StorageClass, row.NoLayers)
		}
	}
	for _, c := range report.Classes {
		n.keepLine("longhorn.txt", "%s, %s: %s; %s; limits %v", name, c.StorageClass, c.Verdict, c.Words, c.Limits)
		if slices.Contains(longhornClasses, c.StorageClass) && c.Verdict != "surely slower" {
			n.t.Errorf("%s is %s", c.StorageClass, c.Verdict)
		}
	}
}

// uninstallLonghornBenches deletes the databases: Longhorn deletes their volumes, and detaches their devices.
func (n *node) uninstallLonghornBenches() {
	n.t.Helper()
	for _, class := range longhornClasses {
		n.helm("db-"+class, "uninstall", "bench", "--wait", "--timeout=5m")
		n.kubectl("delete", "namespace", "db-"+class, "--timeout=5m")
	}
	testkit.Eventually(n.t, defaultTimeout, func() error {
		left, err := n.try("get", "volumes.longhorn.io", "--namespace=longhorn-system", "--output=name")
		if err == nil && left != "" {
			err = errors.New("volumes are left: " + left)
		}
		return err
	})
	for _, expression := range []string{`plumbline_volume_info{storageclass=~"longhorn.*"}`, `plumbline_longhorn_volume_info`, `plumbline_replica_info`} {
		testkit.Eventually(n.t, defaultTimeout, n.none(expression))
	}
}

// leaveLonghorn removes what Longhorn has on the machine itself, once the node's namespaces are gone: loop devices whose bridge has ended
// with its pod, and the folder on the machine's devtmpfs.
func leaveLonghorn(folder string) {
	const record = "overlay/_var_lib/upper/plumbline-iscsi/*/record"
	records, _ := filepath.Glob(filepath.Join(folder, record))
	ofWorkers, _ := filepath.Glob(filepath.Join(folder, "*", record))
	records = append(records, ofWorkers...)
	for _, file := range records {
		var record struct{ Disk string }
		if text, err := os.ReadFile(file); err != nil || json.Unmarshal(text, &record) != nil || record.Disk == "" {
			continue
		}
		detachLoop(record.Disk)
	}
	if err := os.Remove("/dev/longhorn"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		fmt.Fprintln(os.Stderr, "e2e:", err)
	}
}
