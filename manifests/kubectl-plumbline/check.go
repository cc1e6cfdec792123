package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	words "github.com/plumbline/plumbline/rules/why"
)

// version is a major and a minor number.
type version [2]int

func (v version) String() string { return fmt.Sprintf("%d.%d", v[0], v[1]) }

func (v version) less(w version) bool { return v[0] < w[0] || v[0] == w[0] && v[1] < w[1] }

var leading = regexp.MustCompile(`^v?(\d+)\.(\d+)`)

func parseVersion(text string) (v version, ok bool) {
	m := leading.FindStringSubmatch(text)
	if m == nil {
		return v, false
	}
	v[0], _ = strconv.Atoi(m[1])
	v[1], _ = strconv.Atoi(m[2])
	return v, true
}

// What the parts need; docs/install and docs/understand have the reasons.
var (
	leastBlockio    = version{5, 15} // docs/understand/disks.md
	leastTLS        = version{6, 6}  // uprobe.multi: encrypted connections without CAP_SYS_ADMIN
	leastKubernetes = version{1, 30} // manifests/chart/Chart.yaml
)

// leastAgent is the least kernel for statements and replicas by architecture, of which there are those that
// the BPF programs are built for (docs/install/agent.md).
var leastAgent = map[string]version{"amd64": {5, 17}, "arm64": {6, 4}}

// node is what is read of a node.
type node struct {
	Metadata meta
	Status   struct {
		NodeInfo struct {
			KernelVersion, OSImage, Architecture, ContainerRuntimeVersion, OperatingSystem string
		}
		Conditions []struct{ Type, Status string }
	}
}

func (c *cluster) nodes(ctx context.Context) ([]node, error) {
	// In pages: a large cluster's nodes are megabytes.
	var nodes []node
	page := url.Values{"limit": {"500"}}
	for {
		var list struct {
			Metadata struct{ Continue string }
			Items    []node
		}
		if err := c.get(ctx, "/api/v1/nodes", page, &list); err != nil {
			return nil, err
		}
		nodes = append(nodes, list.Items...)
		if list.Metadata.Continue == "" {
			return nodes, nil
		}
		page.Set("continue", list.Metadata.Continue)
	}
}

// Verdicts on a node.
const (
	works   = "works"
	partly  = "in part"
	doesNot = "does not"
	skipped = "left out"
)

// backported matches kernels whose version does not show which features they have.
var backported = regexp.MustCompile(`\.el(9|[1-9][0-9])`)

// judge reports whether the node's kernel is supported, and if not, why.
func (n node) judge() (verdict, why string) {
	info := n.Status.NodeInfo
	kernel, ok := parseVersion(info.KernelVersion)
	switch {
	case info.OperatingSystem != "linux":
		return skipped, "not Linux: no pod of Plumbline is started there"
	case n.Metadata.Labels["eks.amazonaws.com/compute-type"] == "fargate", n.Metadata.Labels["type"] == "virtual-kubelet":
		// The DaemonSets' node affinity goes by the same labels.
		return skipped, "no machine of its own (Fargate or virtual-kubelet): no pod of Plumbline is started there"
	case leastAgent[info.Architecture] == version{}:
		return doesNot, fmt.Sprintf("architecture %s: there are programs for %s", words.Clean(info.Architecture), strings.Join(slices.Sorted(maps.Keys(leastAgent)), " and "))
	case !ok:
		return doesNot, fmt.Sprintf("kernel %q is no version that is understood", info.KernelVersion)
	case kernel.less(leastBlockio) && backported.MatchString(info.KernelVersion):
		return partly, "Red Hat's kernel has many features of later ones; not tried: run plumbline-agent --check on the node"
	case kernel.less(leastBlockio):
		return doesNot, fmt.Sprintf("the kernel is older than %s: neither statements nor block times", leastBlockio)
	case kernel.less(leastAgent[info.Architecture]):
		return partly, fmt.Sprintf("block times; no statements and no replicas, whose programs need Linux %s", leastAgent[info.Architecture])
	}
	for _, condition := range n.Status.Conditions {
		if condition.Type == "Ready" && condition.Status != "True" {
			return doesNot, "the node is not ready"
		}
	}
	if kernel.less(leastTLS) {
		return works, fmt.Sprintf("encrypted connections need Linux %s, or CAP_SYS_ADMIN for the agent", leastTLS)
	}
	return works, ""
}

// check reports which nodes and what of the cluster will work, and what cannot be known from here. What the user has no
// right to read is reported as not known.
func (c *cluster) check(ctx context.Context, w io.Writer) error {
	var unfit, unknown []string
	nodes, err := c.nodes(ctx)
	switch {
	case refused(err):
		fmt.Fprintf(w, "Nodes: not known: %s\n", words.Line(err))
		unknown = append(unknown, "nodes")
	case err != nil:
		return err
	default:
		if n := judged(w, nodes); n > 0 {
			unfit = append(unfit, fmt.Sprintf("%d nodes", n))
		}
	}
	for _, check := range []struct {
		name string
		do   func(context.Context) (string, bool, error)
	}{{"Kubernetes", c.checkVersion}, {"Prometheus operator", c.checkOperator}, {"Storage classes", c.checkClasses}} {
		text, ok, err := check.do(ctx)
		switch {
		case refused(err):
			// Neither a storage class nor the operator makes a cluster unfit, and every user may read the version.
			text = fmt.Sprintf("%s: not known: %s", check.name, words.Line(err))
		case err != nil:
			return err
		case !ok:
			unfit = append(unfit, check.name)
		}
		fmt.Fprintln(w, text)
	}
	fmt.Fprint(w, `Not to be known without a pod on each node: whether the kernel has BTF (/sys/kernel/btf/vmlinux), whether
lockdown or a security module refuses BPF, and whether admission lets a pod have what the agent requires.
Once it is installed, the agent reports it for its node: kubectl -n NAMESPACE exec POD -- /plumbline-agent --check
`)
	var problems []string
	if len(unfit) > 0 {
		problems = append(problems, "not fit: "+strings.Join(unfit, ", "))
	}
	if len(unknown) > 0 {
		problems = append(problems, "not known: "+strings.Join(unknown, ", "))
	}
	if len(problems) > 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}

// judged writes a verdict on each node, and returns how many are not supported.
func judged(w io.Writer, nodes []node) int {
	count := map[string]int{}
	fmt.Fprintf(w, "%-32s %-9s %-30s %-6s %-28s %s\n", "NODE", "PLUMBLINE", "KERNEL", "ARCH", "SYSTEM", "RUNTIME")
	for _, n := range nodes {
		info := n.Status.NodeInfo
		verdict, why := n.judge()
		count[verdict]++
		fmt.Fprintf(w, "%-32s %-9s %-30s %-6s %-28s %s\n", words.Clean(n.Metadata.Name), verdict, words.Clean(info.KernelVersion), words.Clean(info.Architecture), words.Clean(info.OSImage), words.Clean(info.ContainerRuntimeVersion))
		if why != "" {
			fmt.Fprintf(w, "    %s\n", why)
		}
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "%d of %d nodes work", count[works], len(nodes)-count[skipped])
	if count[partly] > 0 {
		fmt.Fprintf(w, ", %d in part", count[partly])
	}
	if count[doesNot] > 0 {
		fmt.Fprintf(w, ", %d do not", count[doesNot])
	}
	fmt.Fprintln(w, ", as far as their objects show.")
	return count[doesNot]
}

// checkVersion reports whether Kubernetes is new enough.
func (c *cluster) checkVersion(ctx context.Context) (string, bool, error) {
	var answer struct{ GitVersion string }
	if err := c.get(ctx, "/version", nil, &answer); err != nil {
		return "", false, err
	}
	answer.GitVersion = words.Clean(answer.GitVersion)
	v, ok := parseVersion(answer.GitVersion)
	if !ok || v.less(leastKubernetes) {
		return fmt.Sprintf("Kubernetes: %s is older than %s, which the manifests need.", answer.GitVersion, leastKubernetes), false, nil
	}
	return fmt.Sprintf("Kubernetes: %s will do.", answer.GitVersion), true, nil
}

// withoutOperator is how Plumbline is installed where the Prometheus operator or some of its kinds are missing.
const withoutOperator = "the chart does without it by prometheus.operator=false, and deploy needs it"

// checkOperator looks for the kinds of the Prometheus operator that the manifests have objects of. It never makes a
// cluster unfit.
func (c *cluster) checkOperator(ctx context.Context) (string, bool, error) {
	var answer struct{ Resources []struct{ Kind string } }
	err := c.get(ctx, "/apis/monitoring.coreos.com/v1", nil, &answer)
	if answered(err, http.StatusNotFound) {
		return "Prometheus operator: not there; install it or kube-prometheus-stack first, or do without: " + withoutOperator + ".", true, nil
	}
	if err != nil {
		return "", false, err
	}
	var missing []string
	for _, kind := range []string{"PodMonitor", "PrometheusRule", "ServiceMonitor"} {
		if !slices.ContainsFunc(answer.Resources, func(r struct{ Kind string }) bool { return r.Kind == kind }) {
			missing = append(missing, kind)
		}
	}
	if len(missing) > 0 {
		return "Prometheus operator: it has no " + strings.Join(missing, ", ") + "; " + withoutOperator + ".", true, nil
	}
	return "Prometheus operator: there; its version is in its image's tag, and must be 0.90 or later.", true, nil
}

// engines maps a storage class's provisioner to what will be measured of it.
var engines = map[string]string{
	"driver.longhorn.io":                 "Longhorn: engine and each replica, on the wire",
	"io.openebs.csi-mayastor":            "Mayastor: its own latencies",
	"cstor.csi.openebs.io":               "cStor: its own latencies",
	"jiva.csi.openebs.io":                "Jiva: engine and each replica, on the wire",
	"openebs.io/local":                   "LocalPV: the node's block device",
	"local.csi.openebs.io":               "LocalPV on LVM: the node's block device",
	"zfs.csi.openebs.io":                 "LocalPV on ZFS: the node's block device",
	"rancher.io/local-path":              "local-path: the node's block device; fit to be the control",
	"rook-ceph.rbd.csi.ceph.com":         "Ceph RBD: its own latencies",
	"rbd.csi.ceph.com":                   "Ceph RBD: its own latencies",
	"pxd.portworx.com":                   "Portworx: its own latencies",
	"disk.csi.azure.com":                 "Azure disk: the node's block device",
	"kubernetes.io/no-provisioner":       "made by hand: the node's block device",
	"org.gluster.glusterfs":              "GlusterFS: its own latencies",
	"kadalu":                             "GlusterFS: its own latencies",
	"ebs.csi.aws.com":                    "EBS: the node's block device",
	"pd.csi.storage.gke.io":              "Google's disks: the node's block device",
	"kubernetes.io/glusterfs":            "GlusterFS: its own latencies",
	"openshift-storage.rbd.csi.ceph.com": "Ceph RBD: its own latencies",
}

// checkClasses reports what will be measured of each storage class. It never makes a cluster unfit.
func (c *cluster) checkClasses(ctx context.Context) (string, bool, error) {
	var list struct {
		Items []struct {
			Metadata    meta
			Provisioner string
		}
	}
	if err := c.get(ctx, "/apis/storage.k8s.io/v1/storageclasses", nil, &list); err != nil {
		return "", false, err
	}
	if len(list.Items) == 0 {
		return "Storage classes: there are none.", true, nil
	}
	lines := []string{"Storage classes:"}
	for _, s := range list.Items {
		what := engines[s.Provisioner]
		if what == "" {
			what = words.Clean(s.Provisioner) + ": not known; its volumes' block devices are seen if they are the nodes'"
		}
		lines = append(lines, fmt.Sprintf("  %-24s %s", words.Clean(s.Metadata.Name), what))
	}
	return strings.Join(lines, "\n"), true, nil
}
