//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The storage classes: the control, and the one whose disk can be held back.
const (
	control = "local-path"
	held    = "held"
)

// holdDisk makes the disk of the class held: a loop device on a file of a file system of this
// process, which holds back its requests.
func (n *node) holdDisk() *rig.SlowDisk {
	n.t.Helper()
	disk := n.slowDiskAt(n.path("disk"), n.path("held"), 4<<30)
	n.must(os.Chmod(n.path("held"), 0o777))
	return disk
}

// slowDiskAt mounts a disk whose requests can be held back; its undelayed data is in the folder backing.
func (n *node) slowDiskAt(backing, at string, size int64) *rig.SlowDisk {
	n.t.Helper()
	disk, err := rig.NewSlowDisk(n.t, backing, size)
	n.must(err)
	n.must(rig.MountExt4(n.t, disk.Device, at))
	return disk
}

// applyCloudNativePG applies the operator as its release's manifest has it, with our image of it.
func (n *node) applyCloudNativePG() {
	n.t.Helper()
	dir, err := kubetest.Module("cloudnative-pg")
	n.must(err)
	version := strings.TrimPrefix(filepath.Base(dir), "cloudnative-pg@v")
	var all bytes.Buffer
	for _, o := range kubetest.Read(n.t, filepath.Join(dir, "releases", "cnpg-"+version+".yaml")) {
		if o.GetKind() == "Deployment" {
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			container := containers[0].(map[string]any)
			container["image"] = cloudnativePGImage
			// A tenth of a CPU, and probes that wait for a second, are too little on a busy machine.
			delete(container, "resources")
			for _, probe := range []string{"livenessProbe", "readinessProbe"} {
				container[probe].(map[string]any)["timeoutSeconds"] = int64(10)
			}
			for _, e := range container["env"].([]any) {
				if e := e.(map[string]any); e["name"] == "OPERATOR_IMAGE_NAME" {
					e["value"] = cloudnativePGImage
				}
			}
			n.must(unstructured.SetNestedSlice(o.Object, containers, "spec", "template", "spec", "containers"))
		}
		text, err := yaml.Marshal(o.Object)
		n.must(err)
		all.WriteString("---\n")
		all.Write(text)
	}
	n.apply(all.String())
	n.kubectl("rollout", "status", "deployment/cnpg-controller-manager", "--namespace=cnpg-system", "--timeout=5m")
}

// awaitDatabases waits until all databases and canaries run.
func (n *node) awaitDatabases() {
	n.t.Helper()
	for _, class := range []string{control, held} {
		n.awaitPostgreSQL(class)
	}
	n.kubectl("rollout", "status", "statefulset/mysql-"+control, "--namespace=db-"+control, "--timeout=5m")
	n.kubectl("rollout", "status", "deployment/canary-mysql-"+control, "--namespace=db-"+control, "--timeout=5m")
}

// awaitPostgreSQL waits until a class's PostgreSQL and its canary run.
func (n *node) awaitPostgreSQL(class string) {
	n.t.Helper()
	namespace := "--namespace=db-" + class
	n.kubectl("wait", "--for=condition=Ready", "cluster/postgresql-"+class, namespace, "--timeout=8m")
	n.kubectl("rollout", "status", "deployment/canary-postgresql-"+class, namespace, "--timeout=5m")
}

// punctual gives the canaries real-time priority, out of the pods' share of the CPUs: on a machine
// that does other things they would be late, and report that instead of measuring.
func (n *node) punctual() {
	n.t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	n.must(err)
	found := 0
	for _, link := range links {
		if target, err := os.Readlink(link); err != nil || target != "/loadgen" {
			continue
		}
		found++
		pid := filepath.Base(filepath.Dir(link))
		// The old hierarchies give groups no real time unless it is shared out to each.
		if procs := "/sys/fs/cgroup/cpu/cgroup.procs"; os.WriteFile(procs, []byte(pid), 0o644) != nil {
			n.t.Logf("%s stays in its cgroup", pid)
		}
		n.run(testkit.Tool(n.t, "chrt"), "--all-tasks", "--rr", "--pid", "1", pid)
	}
	if found != 3 {
		n.t.Errorf("%d processes of loadgen, want 3", found)
	}
}

// primary is the pod that a class's PostgreSQL writes in.
func (n *node) primary(class string) string {
	n.t.Helper()
	return n.kubectl("get", "cluster/postgresql-"+class, "--namespace=db-"+class, "--output=jsonpath={.status.currentPrimary}")
}

// volumeOf is the name of a claim's persistent volume.
func (n *node) volumeOf(namespace, claim string) string {
	n.t.Helper()
	return n.kubectl("get", "persistentvolumeclaim/"+claim, "--namespace="+namespace, "--output=jsonpath={.spec.volumeName}")
}

// join is what a server's series are joined to, as Prometheus has it.
type join struct{ server, namespace, pod, owner, claim, volume, device, class, load string }

// joins reads which volume, claim and device each of the agent's servers is on, and which load
// reaches it.
func (n *node) joins() ([]join, error) {
	found, err := n.query(`server:volume:info * on (node, volume) group_left (device) group by (node, volume, device) (plumbline_volume_info)`)
	if err != nil {
		return nil, err
	}
	var all []join
	for _, s := range found {
		m := s.Metric
		j := join{server: m["server"], namespace: m["namespace"], claim: m["persistentvolumeclaim"], volume: m["volume"], device: m["device"], class: m["storageclass"]}
		infos, err := n.query(fmt.Sprintf(`plumbline_server_info{server=%q}`, j.server))
		if err != nil {
			return nil, err
		}
		for _, i := range infos {
			j.pod, j.owner = i.Metric["pod"], i.Metric["owner_kind"]+" "+i.Metric["owner"]
		}
		loads, err := n.query(fmt.Sprintf(`loadgen:volume:info{server=%q}`, j.server))
		if err != nil {
			return nil, err
		}
		for _, l := range loads {
			j.load = l.Metric["database"]
		}
		all = append(all, j)
	}
	slices.SortFunc(all, func(a, b join) int { return strings.Compare(a.server, b.server) })
	return all, nil
}

// checkJoins is nil once exactly the wanted servers are there, each on the claim of its own pod;
// claims maps NAMESPACE/POD to the claim, loads maps it to the load that reaches it.
func (n *node) checkJoins(claims, classes, loads map[string]string) error {
	got, err := n.joins()
	if err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, j := range got {
		claim, ok := claims[j.server]
		switch {
		case !ok:
			return fmt.Errorf("a server is called %q; there are %v", j.server, claims)
		case seen[j.server]:
			return fmt.Errorf("%s is on two volumes: %v", j.server, got)
		case j.claim != claim || j.class != classes[j.server] || j.namespace+"/"+j.pod != j.server || j.device == "":
			return fmt.Errorf("%s is joined as %+v; want claim %s of class %s", j.server, j, claim, classes[j.server])
		case (j.load != "") != (loads[j.server] != "") || !strings.Contains(j.load, loads[j.server]):
			return fmt.Errorf("%s is reached by %q, want %q", j.server, j.load, loads[j.server])
		}
		seen[j.server] = true
	}
	if len(seen) != len(claims) {
		return fmt.Errorf("%d servers of %d are on known volumes: %v", len(seen), len(claims), got)
	}
	return nil
}

// writeJoins writes the table of joins and logs it.
func (n *node) writeJoins(when string) {
	n.t.Helper()
	all, err := n.joins()
	n.must(err)
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n| server | pod | owner | namespace | claim | volume | device | class | load |\n|---|---|---|---|---|---|---|---|---|\n", when)
	for _, j := range all {
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", j.server, j.pod, j.owner, j.namespace, j.claim, j.volume, j.device, j.class, j.load)
	}
	n.t.Log("\n" + b.String())
	n.report("joins.md", b.String()+"\n")
}

// report adds text to a file of build/e2e, which is what a run leaves behind.
func (n *node) report(name, text string) {
	n.t.Helper()
	path := filepath.Join(testkit.Root(), "build", "e2e", name)
	n.must(os.MkdirAll(filepath.Dir(path), 0o755))
	flags := os.O_APPEND | os.O_CREATE | os.O_WRONLY
	if !n.reported[name] {
		flags |= os.O_TRUNC
	}
	n.reported[name] = true
	f, err := os.OpenFile(path, flags, 0o644)
	n.must(err)
	_, err = f.WriteString(text)
	n.must(err)
	n.must(f.Close())
}
