// Package pod finds out which Kubernetes pod a process of this node belongs to, and what that pod is called: by the
// process's cgroup, and then by the API server or, while that does not answer, by the folders that the kubelet makes
// for pods' logs.
package pod

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// ID is the container and pod that a process is in.
type ID struct {
	// UID is the pod's; of a static pod the one that the kubelet gave it.
	UID string
	// Container is the runtime's number of the container, or empty.
	Container string
}

// Pod is a pod of this node.
type Pod struct {
	Namespace, Name string
	// Hostname is the pod's hostname: its name, but with the node's network the node's.
	Hostname string
	// OwnerKind and Owner are the controller that made it: a CloudNativePG Cluster, a StatefulSet. They are empty if
	// there is none, or if the API server has not listed the pod yet.
	OwnerKind, Owner string
	// IPs are its addresses, as far as the API server has listed them.
	IPs []string
	// Unfollowed is set if the pod's annotation leaves its database servers out.
	Unfollowed bool
	// Claims are the names of the PersistentVolumeClaims that it uses, as far as the API server has listed them.
	Claims []string
	// Complete is set if the API server has listed the pod; else only namespace and name are known.
	Complete bool
	// containers are the names of its containers, by the runtime's numbers.
	containers map[string]string
}

// Container returns the name of the container with a runtime's number, or "" while it is not known.
func (p Pod) Container(number string) string { return p.containers[number] }

// Node knows the pods of this node.
type Node struct {
	cgroups cgroups
	objects *kube.Objects
	calls   *untrusted.Calls
	logs    string
	// readLogs reads the folders of logs.
	readLogs func(folder string) (map[string]Pod, error)

	// reading is held while the folders of logs are read, which may hang.
	reading sync.Mutex
	// mu guards logged, which is the content of the folders of logs at read, and numbers, which are those of containers
	// at a revision of the pods.
	mu       sync.Mutex
	logged   map[string]Pod
	read     time.Time
	numbers  map[string]string
	revision uint64
}

// rereadAfter is how long the content of the folders of logs is valid; processes may come and go quickly.
const rereadAfter = time.Second

// NewNode returns a Node for the procfs that PID 1 sees. It makes objects follow the node's pods, so it must come
// before they are run. The calls are for what may hang.
func NewNode(procfs, node string, objects *kube.Objects, calls *untrusted.Calls) *Node {
	follow(objects, node)
	n := &Node{objects: objects, calls: calls, logs: filepath.Join(hostRoot(procfs), "var/log/pods"), readLogs: fromLogs}
	n.cgroups = cgroups{procfs, n.ofContainers}
	return n
}

// ofContainers returns the UIDs of pods by the runtime's numbers of their containers, as far as the API server has
// listed them.
func (n *Node) ofContainers() map[string]string {
	revision := n.objects.Revision(resource)
	n.mu.Lock()
	defer n.mu.Unlock()
	if revision == 0 || revision != n.revision {
		n.numbers, n.revision = map[string]string{}, revision
		pods, _ := n.fromAPI()
		for uid, p := range pods {
			for number := range p.containers {
				n.numbers[number] = uid
			}
		}
	}
	return n.numbers
}

// Of returns the pod and container that a process is in, or the zero ID of one in no pod. The error is ErrUntrusted if
// it only seems to be in one.
func (n *Node) Of(pid int) (ID, error) { return n.cgroups.of(pid) }

// InGroup returns the pod that the path of a cgroup names, from the root of its hierarchy; ok is false if it names none.
// It proves nothing: the caller knows that only root made what is on that path. Without a Node, only cgroups of pods
// count.
func (n *Node) InGroup(at string) (id ID, ok bool) {
	c := cgroups{}
	if n != nil {
		c = n.cgroups
	}
	found, ok := c.named(at)
	return found.id, ok
}

// kubelets is in the names of all cgroups that the kubelet makes for pods.
const kubelets = "kubepods"

// Strays counts the processes that are in a cgroup of the kubelet's by its name, but in no pod's whose name can be
// read, and those in one of a pod that neither the API server nor the kubelet's folders know. If the node has pods, and
// none of the processes is known to be in one, all that are in a container count as the former. The names prove nothing:
// any process that may make cgroups can add to both. It also counts lines of /proc/PID/cgroup without a cgroup.
func (n *Node) Strays(pids []int) (unread, unknown, lines int) {
	pods, alone := map[string]int{}, 0 // processes by UID, and those in containers of no known pod
	for _, pid := range pids {
		text, err := n.cgroups.text(pid)
		if err != nil {
			continue // it has ended
		}
		in, contained := false, false
		uid := ""
		for line := range strings.Lines(text) {
			_, at := split(line)
			if at == "" {
				lines++
			}
			in = in || strings.Contains(at, kubelets)
			contained = contained || slices.ContainsFunc(strings.Split(at, "/"), containerGroup.MatchString)
			if one, ok := n.cgroups.named(at); ok {
				uid = one.id.UID
				break
			}
		}
		switch {
		case uid != "":
			pods[uid]++
		case in:
			unread++
		case contained:
			alone++
		}
	}
	if len(pods) == 0 && (len(kube.All[*object](n.objects, resource)) > 0 || len(n.fromFolders()) > 0) {
		unread += alone
	}
	found := n.Find(slices.Collect(maps.Keys(pods)))
	for uid, processes := range pods {
		if _, known := found[uid]; !known {
			unknown += processes
		}
	}
	return unread, unknown, lines
}

// Find returns the pods with these UIDs, as far as their names are known.
func (n *Node) Find(uids []string) map[string]Pod {
	found, claims := n.fromAPI()
	pods := map[string]Pod{}
	var rest []string
	for _, uid := range uids {
		if p, ok := found[uid]; ok {
			pods[uid] = p
		} else {
			rest = append(rest, uid)
		}
	}
	if len(rest) == 0 {
		return pods
	}
	// The names are the same from either source.
	logged := n.fromFolders()
	for _, uid := range rest {
		p, ok := logged[uid]
		if !ok {
			continue
		}
		pods[uid] = p
		// The kubelet's folder proves that the copy of this name is that of the pod with this UID.
		for _, copied := range claims[uid] {
			if copied.Namespace == p.Namespace && copied.Name == p.Name {
				pods[uid] = copied
			}
		}
	}
	return pods
}

// fromFolders returns the pods found in the folders of logs. If the read times out, those found before count until it
// ends.
func (n *Node) fromFolders() map[string]Pod {
	n.reading.Lock()
	defer n.reading.Unlock()
	n.mu.Lock()
	again := time.Since(n.read) >= rereadAfter
	n.mu.Unlock()
	if again {
		// Of a read that fails nothing is known; logged is empty then.
		_ = n.calls.Do("folders of pods' logs", func() error {
			pods, err := n.readLogs(n.logs)
			n.mu.Lock()
			defer n.mu.Unlock()
			n.logged, n.read = pods, time.Now()
			return err
		})
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.logged
}

// Names as Kubernetes allows them, and a folder of a pod's logs: NAMESPACE_POD_UID.
var logFolder = regexp.MustCompile(`^([a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)_([a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?)_` + uid + `$`)

// fromLogs returns the pods whose logs the kubelet keeps, by UID. Only root makes folders there.
func fromLogs(folder string) (map[string]Pod, error) {
	if err := ownedByRoot(folder); err != nil {
		return nil, err
	}
	dir, err := os.Open(folder)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	const most = 10000 // a node has hundreds
	names, err := dir.Readdirnames(most)
	if len(names) == 0 && err != nil {
		return nil, fmt.Errorf("folders of pods' logs: %w", err)
	}
	pods := map[string]Pod{}
	for _, name := range names {
		if m := logFolder.FindStringSubmatch(name); m != nil && !strings.Contains(m[3], "_") {
			pods[m[3]] = Pod{Namespace: m[1], Name: m[2], Hostname: m[2]}
		}
	}
	return pods, nil
}

// New returns a pod as the API server would list it, for tests.
func New(namespace, name string, containers map[string]string) Pod {
	return Pod{Namespace: namespace, Name: name, Hostname: name, Complete: true, containers: containers}
}
