package collector

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// What is read of Longhorn's objects, group longhorn.io, version v1beta2, the same from
// Longhorn 1.8 to 1.12 (longhorn-manager k8s/pkg/apis/longhorn/v1beta2).

type volumeObject struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		engineName
		NumberOfReplicas int64  `json:"numberOfReplicas"`
		Frontend         string `json:"frontend"`
	} `json:"spec"`
	Status struct {
		State            string     `json:"state"`
		Robustness       string     `json:"robustness"`
		CurrentNodeID    string     `json:"currentNodeID"`
		Conditions       conditions `json:"conditions"`
		LastDegradedAt   string     `json:"lastDegradedAt"`
		KubernetesStatus struct {
			PVName    string `json:"pvName"`
			PVCName   string `json:"pvcName"`
			Namespace string `json:"namespace"`
		} `json:"kubernetesStatus"`
	} `json:"status"`
}

type condition struct {
	Type   string `json:"type"`
	Status string `json:"status"`
	Reason string `json:"reason"`
}

// conditions are a list; in version v1beta1 they are by their type.
type conditions []condition

// UnmarshalJSON implements json.Unmarshaler.
func (c *conditions) UnmarshalJSON(text []byte) error {
	var list []condition
	if !strings.HasPrefix(string(text), "{") {
		err := json.Unmarshal(text, &list)
		*c = list
		return err
	}
	var byType map[string]condition
	err := json.Unmarshal(text, &byType)
	for _, name := range slices.Sorted(maps.Keys(byType)) {
		one := byType[name]
		one.Type = cmp.Or(one.Type, name)
		list = append(list, one)
	}
	*c = list
	return err
}

// engineName is which of Longhorn's engines an object is of. Longhorn 1.5 and 1.6 call it the backend's driver.
type engineName struct {
	DataEngine string `json:"dataEngine"`
	Driver     string `json:"backendStoreDriver"`
}

// engine is the engine's name: v1, v2 or, of an object that names none, empty.
func (e engineName) engine() string { return cmp.Or(e.DataEngine, e.Driver) }

// instanceSpec and instanceStatus are common to engines and replicas.
type instanceSpec struct {
	engineName
	VolumeName string `json:"volumeName"`
	NodeID     string `json:"nodeID"`
}

type instanceStatus struct {
	InstanceManagerName string `json:"instanceManagerName"`
	CurrentState        string `json:"currentState"`
	IP                  string `json:"ip"`
	StorageIP           string `json:"storageIP"`
	Port                int64  `json:"port"`
}

type engineObject struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		instanceSpec `json:",inline"`
		Active       bool `json:"active"`
		// Addresses are where the engine is meant to have its replicas, by their names.
		Addresses map[string]string `json:"replicaAddressMap"`
	} `json:"spec"`
	Status struct {
		instanceStatus `json:",inline"`
		// Addresses are where it has them.
		Addresses map[string]string `json:"currentReplicaAddressMap"`
	} `json:"status"`
}

type replicaObject struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		instanceSpec `json:",inline"`
		DiskPath     string `json:"diskPath"`
		HealthyAt    string `json:"healthyAt"`
		FailedAt     string `json:"failedAt"`
		// Active is false of a second object for the same data, which Longhorn makes for another engine while a volume
		// moves or its engine is upgraded, and of the first one after that. Nil counts as true.
		Active *bool `json:"active"`
	} `json:"spec"`
	Status instanceStatus `json:"status"`
}

// active reports whether the object is the one of its data that counts.
func (o *replicaObject) active() bool { return o.Spec.Active == nil || *o.Spec.Active }

type nodeObject struct {
	kube.Meta `json:"metadata"`
	Status    struct {
		Conditions conditions `json:"conditions"`
		DiskStatus map[string]struct {
			DiskUUID         string           `json:"diskUUID"`
			DiskPath         string           `json:"diskPath"`
			DiskType         string           `json:"diskType"`
			ScheduledReplica map[string]int64 `json:"scheduledReplica"`
		} `json:"diskStatus"`
	} `json:"status"`
}

type managerObject struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		engineName
		NodeID string `json:"nodeID"`
		Type   string `json:"type"`
	} `json:"spec"`
	Status struct {
		CurrentState string `json:"currentState"`
		IP           string `json:"ip"`
	} `json:"status"`
}

var (
	volumeStates    = []string{"creating", "attached", "detached", "attaching", "detaching", "deleting"}
	robustnesses    = []string{"unknown", "healthy", "degraded", "faulted"}
	instanceStates  = []string{"running", "stopped", "error", "starting", "stopping", "unknown"}
	longhornEngines = []string{"v1", "v2"}
)

// unknownValue returns which of the fields, given as name, value and known values, has an unknown value. An object that was
// just made has no states yet.
func unknownValue(fields ...any) string {
	for i := 0; i < len(fields); i += 3 {
		value := fields[i+1].(string)
		if value != "" && !slices.Contains(fields[i+2].([]string), value) {
			return fmt.Sprintf("%s: %q", fields[i], value)
		}
	}
	return ""
}

func (o *volumeObject) UnknownValue() string {
	if _, err := o.degradedSince(); err != nil {
		return fmt.Sprintf("status.lastDegradedAt: %q", o.Status.LastDegradedAt)
	}
	return unknownValue("status.state", o.Status.State, volumeStates, "status.robustness", o.Status.Robustness, robustnesses,
		"spec.dataEngine", o.Spec.engine(), longhornEngines)
}

// degradedSince is when the volume last became degraded; zero if it never did.
func (o *volumeObject) degradedSince() (time.Time, error) {
	if o.Status.LastDegradedAt == "" {
		return time.Time{}, nil
	}
	return time.Parse(time.RFC3339, o.Status.LastDegradedAt)
}

const (
	// maxConditions bounds a volume's conditions, maxDisks a node's disks.
	maxConditions, maxDisks = 64, 256
)

// Check implements kube's check of an object's bounds.
func (o *volumeObject) Check() error {
	if o.Spec.NumberOfReplicas < 0 || o.Spec.NumberOfReplicas > maxReplicas || len(o.Status.Conditions) > maxConditions {
		return fmt.Errorf("%d replicas, %d conditions; at most %d and %d can be", o.Spec.NumberOfReplicas, len(o.Status.Conditions), maxReplicas, maxConditions)
	}
	return nil
}

// Check implements kube's check of an object's bounds.
func (o *nodeObject) Check() error {
	if len(o.Status.DiskStatus) > maxDisks {
		return fmt.Errorf("%d disks; at most %d can be", len(o.Status.DiskStatus), maxDisks)
	}
	return nil
}

// Check implements kube's check of an object's bounds.
func (o *engineObject) Check() error {
	if len(o.Spec.Addresses) > maxReplicas || len(o.Status.Addresses) > maxReplicas {
		return fmt.Errorf("%d and %d replicas' addresses; at most %d can be", len(o.Spec.Addresses), len(o.Status.Addresses), maxReplicas)
	}
	return nil
}

func (o *engineObject) UnknownValue() string {
	return unknownValue("status.currentState", o.Status.CurrentState, instanceStates, "spec.dataEngine", o.Spec.engine(), longhornEngines)
}

func (o *replicaObject) UnknownValue() string {
	return unknownValue("status.currentState", o.Status.CurrentState, instanceStates, "spec.dataEngine", o.Spec.engine(), longhornEngines)
}

func (o *nodeObject) UnknownValue() string { return "" }

// Shared are the texts that many engines or replicas have.
func (s *instanceSpec) Shared() []*string {
	return []*string{&s.DataEngine, &s.Driver, &s.NodeID}
}

// Shared implements kube's sharing of texts.
func (o *engineObject) Shared() []*string { return append(o.Spec.Shared(), o.Status.Shared()...) }

// Shared implements kube's sharing of texts.
func (o *replicaObject) Shared() []*string {
	return append(append(o.Spec.Shared(), o.Status.Shared()...), &o.Spec.DiskPath)
}

// Shared are the texts that many engines or replicas have.
func (s *instanceStatus) Shared() []*string {
	return []*string{&s.InstanceManagerName, &s.CurrentState, &s.IP, &s.StorageIP}
}

// Shared implements kube's sharing of texts.
func (o *volumeObject) Shared() []*string {
	texts := []*string{&o.Spec.DataEngine, &o.Spec.Driver, &o.Spec.Frontend, &o.Status.State, &o.Status.Robustness, &o.Status.CurrentNodeID,
		&o.Status.KubernetesStatus.Namespace}
	for i := range o.Status.Conditions {
		c := &o.Status.Conditions[i]
		texts = append(texts, &c.Type, &c.Status, &c.Reason)
	}
	return texts
}

// away reports whether the node is gone or its kubelet does not answer, as Longhorn has it of Kubernetes: what objects
// have of the node is as it was then. That its manager is away means nothing for its replicas.
func (c *Cluster) away() func(node string) bool {
	nodes := all[*nodeObject](c, "nodes")
	if c.Revision("nodes") == 0 {
		return func(string) bool { return false }
	}
	return func(node string) bool {
		o := nodes[node]
		return node != "" && (o == nil || slices.ContainsFunc(o.Status.Conditions, func(s condition) bool {
			return s.Type == "Ready" && s.Status != "True" && (s.Reason == "KubernetesNodeGone" || s.Reason == "KubernetesNodeNotReady")
		}))
	}
}

func (o *managerObject) UnknownValue() string {
	return unknownValue("status.currentState", o.Status.CurrentState, instanceStates)
}

func backendOf(dataEngine string) string {
	switch dataEngine {
	case "v2":
		return BackendV2
	case "", "v1":
		return BackendV1
	}
	// Unknown engines keep their own name.
	return "longhorn-" + dataEngine
}

// data is where other nodes reach the instance for data, control where its gRPC server is;
// they differ on a cluster with a storage network. Both are empty while it does not run.
func (s instanceStatus) data() string {
	if s.StorageIP == "" {
		return s.control()
	}
	return s.at(s.StorageIP)
}

func (s instanceStatus) control() string { return s.at(s.IP) }

func (s instanceStatus) at(ip string) string {
	if s.CurrentState != "running" || ip == "" || s.Port <= 0 {
		return ""
	}
	return net.JoinHostPort(ip, strconv.FormatInt(s.Port, 10))
}

// targets are the volumes with a running engine that is of interest here.
func (c *Cluster) targets() []Target {
	managers := all[*managerObject](c, "instancemanagers")
	replicas := map[string][]ReplicaTarget{} // by volume
	objects := all[*replicaObject](c, "replicas")
	maps.Copy(objects, all[*replicaObject](c, elsewhere))
	for name, r := range objects {
		if address := r.Status.data(); address != "" && r.active() {
			replicas[r.Spec.VolumeName] = append(replicas[r.Spec.VolumeName], ReplicaTarget{
				Name: name, Address: address, Control: r.Status.control(), Node: r.Spec.NodeID, Directory: r.Spec.DiskPath,
			})
		}
	}
	var targets []Target
	engines := all[*engineObject](c, "engines")
	taken := map[string]bool{} // volumes
	// By name: should a volume have two active ones here, the same one is queried each time.
	for _, name := range slices.Sorted(maps.Keys(engines)) {
		e := engines[name]
		manager := managers[e.Status.InstanceManagerName]
		// While a volume moves from one node to another it has two engines, one active.
		if !e.Spec.Active || e.Status.CurrentState != "running" || manager == nil || manager.Status.IP == "" {
			continue
		}
		if c.node != "" && e.Spec.NodeID != c.node {
			continue
		}
		t := Target{
			Volume: e.Spec.VolumeName, Engine: e.Status.control(), EngineName: name,
			Backend: backendOf(e.Spec.engine()), Manager: manager.Status.IP, Replicas: replicas[e.Spec.VolumeName],
		}
		if t.Backend != BackendV1 && t.Backend != BackendV2 {
			continue
		}
		if taken[t.Volume] {
			continue
		}
		taken[t.Volume] = true
		sort.Slice(t.Replicas, func(i, j int) bool { return t.Replicas[i].Name < t.Replicas[j].Name })
		t.names = e.others(t.Replicas)
		targets = append(targets, t)
	}
	return targets
}

// others are the names, by address, of replicas that the engine still has but that, by their own objects, do not run
// there any more; nil if there are none. The engine itself reports a failed replica by its address alone.
func (o *engineObject) others(running []ReplicaTarget) map[string]string {
	var names map[string]string
	for _, addresses := range []map[string]string{o.Spec.Addresses, o.Status.Addresses} {
		for _, name := range slices.Sorted(maps.Keys(addresses)) {
			address := addresses[name]
			if address == "" || slices.ContainsFunc(running, func(r ReplicaTarget) bool { return r.Address == address }) {
				continue
			}
			if names == nil {
				names = map[string]string{}
			}
			names[address] = name
		}
	}
	return names
}

// places are where the replicas of interest are.
func (c *Cluster) places() []place {
	var places []place
	for name, r := range all[*replicaObject](c, "replicas") {
		if r.Spec.NodeID == "" || !r.active() || c.node != "" && r.Spec.NodeID != c.node {
			continue
		}
		places = append(places, place{
			volume: r.Spec.VolumeName, replica: name, node: r.Spec.NodeID, directory: r.Spec.DiskPath,
			address: r.Status.data(), backend: backendOf(r.Spec.engine()),
		})
	}
	return places
}
