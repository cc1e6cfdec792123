package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Unidentified is what agents could not identify, of one kind and for one reason (plumbline_unidentified_objects).
type Unidentified struct {
	Kind, Reason string
	// Count is how many there are on all nodes, and Nodes are those.
	Count int
	Nodes []string
	// What it means, and Next is what to do.
	What, Next string
}

// String is a line for it.
func (u Unidentified) String() string {
	const most = 3
	nodes := strings.Join(u.Nodes[:min(len(u.Nodes), most)], ", ")
	if more := len(u.Nodes) - most; more > 0 {
		nodes += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("%s %s: %d on %s: %s. %s", u.Kind, u.Reason, u.Count, nodes, u.What, u.Next)
}

// check is the command by which an agent names what it does not understand.
const check = "kubectl --namespace NAMESPACE exec POD -- /plumbline-agent --check, in the agent's pod of that node, names them."

// inLog is where the agent names what has no line in --check.
const inLog = "The log of the agent on that node names them: kubectl --namespace NAMESPACE logs POD."

// advice is what the kinds and reasons mean, and what to do. METRICS.md has them all.
var advice = map[string][2]string{
	"claim unknown":          {"running pods use claims of which the agent knows no bound volume", "May it list them? kubectl auth can-i list persistentvolumes --as=system:serviceaccount:NAMESPACE:plumbline-agent"},
	"claim not_mounted":      {"running pods use claims that are mounted nowhere below the kubelet's folder", "Does the agent see the host's mounts? It needs hostPID. Else report the volume's source: kubectl get persistentvolume VOLUME -o yaml"},
	"claim ambiguous":        {"claims may be either of two devices or folders", inLog},
	"claim device":           {"the devices of claims are not found", inLog},
	"process cgroup":         {"containers are in cgroups that show no pod, so that their volumes and servers belong to none", "See whether the agent may list pods. Else report such a line: cat /proc/PID/cgroup on the node."},
	"process pod":            {"containers are of pods that neither the API server nor the kubelet's folders know", "May the agent list pods? kubectl auth can-i list pods --as=system:serviceaccount:NAMESPACE:plumbline-agent"},
	"path nvme":              {"disks over NVMe over Fabrics have a form in sysfs that is not understood", "Report it: ls -l /sys/class/nvme/*/ on the node."},
	"path iscsi":             {"disks over iSCSI have a form in sysfs that is not understood", "Report it: ls -l /sys/block on the node."},
	"replica device":         {"replicas of volumes have a folder on no block device that is known", "The log of the agent on that node names them at --log.level=debug: kubectl --namespace NAMESPACE logs POD."},
	"server data_directory":  {"database servers have a data directory that is not known", "May the agent read it? It needs the capabilities SYS_PTRACE and DAC_READ_SEARCH. " + check},
	"server device":          {"database servers keep their data on no block device", "Nothing, if it is a network file system, ZFS or memory; else " + strings.ToLower(inLog[:1]) + inLog[1:]},
	"server volume":          {"database servers keep their data on a disk that is no volume, such as the node's own", "Nothing, if that is so; else see whether the pod has a claim: kubectl describe pod POD"},
	"server ports":           {"database servers have more ports for clients than four, and clients on the others are not measured", check},
	"listener postgresql":    {"programs listen on PostgreSQL's port that are no server or proxy that the agent knows", stranger},
	"listener mysql":         {"programs listen on MySQL's port that are no server or proxy that the agent knows", stranger},
	"listener redis":         {"programs listen on Redis' port that are no server or proxy that the agent knows", stranger},
	"listener namespace":     {"network namespaces are not scanned, as there are too many", "Who makes them? lsns --type net on the node."},
	"block_device in_flight": {"block devices have requests by the kernel's count that do not exist", "Nothing: they are no stall. The log of the agent on that node names them; a boot of the node ends it."},
	"line mountinfo":         {"lines of mount tables are not understood", "Report one: cat /proc/1/mountinfo on the node. A container with over 4 MB of mounts counts, too."},
	"line cgroup":            {"lines of processes' cgroups are not understood", "Report one: cat /proc/PID/cgroup on the node."},
	"line stat":              {"processes are left out as their line is not understood", check},
	"line tcp":               {"tables of sockets are not understood or not whole", check},
	"line diskstats":         {"block devices are left out as their line is not understood", "Report it: cat /proc/diskstats on the node."},
}

const stranger = check + " A database under a name of its own: --query.server-name=ENGINE=NAME (agent.extraArgs in the chart's values)."

// unidentified queries what agents could not identify.
func (c *chain) unidentified() (all []Unidentified) {
	found := map[string]*Unidentified{}
	for _, s := range c.vector("unidentified") {
		kind, reason := string(s.Metric["kind"]), string(s.Metric["reason"])
		u := found[kind+" "+reason]
		if u == nil {
			means, known := advice[kind+" "+reason]
			if !known {
				means = [2]string{"this plugin is older than the agent", "METRICS.md of the agent's release has what it means."}
			}
			u = &Unidentified{Kind: kind, Reason: reason, What: means[0], Next: means[1]}
			found[kind+" "+reason] = u
		}
		u.Count += int(s.Value)
		u.Nodes = append(u.Nodes, string(s.Metric["node"]))
	}
	for _, u := range found {
		slices.Sort(u.Nodes)
		all = append(all, *u)
	}
	slices.SortFunc(all, func(a, b Unidentified) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Reason, b.Reason))
	})
	return all
}
