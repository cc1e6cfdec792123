package pod

import (
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

const resource = "pods"

// follow makes objects follow the pods of one node.
func follow(objects *kube.Objects, node string) {
	kube.Follow(objects, kube.Kind{Versions: []string{"v1"}, Resource: resource, Fields: "spec.nodeName=" + node, Spread: true}, (*object).keep)
}

// mirrorOf is the UID that the kubelet knows a static pod by; the API server has given its copy of the pod another one.
const mirrorOf = "kubernetes.io/config.mirror"

// object is what is read of a Pod: not the environment with its passwords.
type object struct {
	metadata `json:"metadata"`
	Spec     struct {
		Hostname    string `json:"hostname"`
		HostNetwork bool   `json:"hostNetwork"`
		NodeName    string `json:"nodeName"`
		Volumes     []struct {
			Name  string `json:"name"`
			Claim struct {
				Name string `json:"claimName"`
			} `json:"persistentVolumeClaim"`
			Ephemeral *struct{} `json:"ephemeral"`
		} `json:"volumes"`
		// claims are the names of the PersistentVolumeClaims that it uses, those that are made for it among them.
		claims []string
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
		IPs   []struct {
			IP string `json:"ip"`
		} `json:"podIPs"`
		Containers     []status `json:"containerStatuses"`
		InitContainers []status `json:"initContainerStatuses"`
	} `json:"status"`
}

type metadata struct {
	kube.Meta
	UID    string `json:"uid"`
	Owners []struct {
		Kind       string `json:"kind"`
		Name       string `json:"name"`
		Controller bool   `json:"controller"`
	} `json:"ownerReferences"`
	Labels struct {
		Hash string `json:"pod-template-hash"` // of a Deployment's pod: the end of its ReplicaSet's name
	} `json:"labels"`
	Annotations struct {
		Mirror string `json:"kubernetes.io/config.mirror"` // mirrorOf
		// Follow is a truth value, as strconv.ParseBool takes them, or yes or no, in letters of either case; see follows.
		Follow *string `json:"plumbline.io/follow"`
	} `json:"annotations"`
}

// follows reports whether the database servers of a pod are to be followed. Of a value that is not understood, unknown
// names it, and they are not: somebody has meant to change what happens without one.
func (m *metadata) follows() (follow bool, unknown string) {
	if m.Annotations.Follow == nil {
		return true, ""
	}
	switch value := strings.ToLower(strings.TrimSpace(*m.Annotations.Follow)); value {
	case "yes", "on":
		return true, ""
	case "no", "off":
		return false, ""
	default:
		follow, err := strconv.ParseBool(value)
		if err != nil {
			return false, "plumbline.io/follow=" + *m.Annotations.Follow
		}
		return follow, ""
	}
}

type status struct {
	Name string `json:"name"`
	ID   string `json:"containerID"` // containerd://0123…
}

// keep keeps the claims of the volumes alone.
func (o *object) keep() kube.Object {
	for _, v := range o.Spec.Volumes {
		if v.Claim.Name != "" {
			o.Spec.claims = append(o.Spec.claims, v.Claim.Name)
		}
		if v.Ephemeral != nil {
			o.Spec.claims = append(o.Spec.claims, o.Name+"-"+v.Name)
		}
	}
	o.Spec.Volumes = nil
	return o
}

// Claims returns the PersistentVolumeClaims that pods of the node use, as NAMESPACE/NAME, and of each whether one of
// them is running; nil before they were listed. The volumes of one that is not need not be there yet, or any more.
func (n *Node) Claims() map[string]bool {
	if n.objects.Revision(resource) == 0 {
		return nil
	}
	claims := map[string]bool{}
	for _, o := range kube.All[*object](n.objects, resource) {
		for _, name := range o.Spec.claims {
			key := o.Namespace + "/" + name
			claims[key] = claims[key] || o.Status.Phase == "Running"
		}
	}
	return claims
}

// UnknownValue implements kube.Object.
func (o *object) UnknownValue() string {
	_, unknown := o.follows()
	return unknown
}

// Check returns an error for impossible values of a pod.
func (o *object) Check() error {
	if o.Namespace == "" || o.Name == "" || o.UID == "" {
		return errors.New("a pod without namespace, name or UID")
	}
	return nil
}

// fromAPI returns the pods that the API server listed, by UID. claims are, by other UIDs, the pods whose annotation
// claims to be the copy of a static pod with that UID, which needs proof.
func (n *Node) fromAPI() (pods map[string]Pod, claims map[string][]Pod) {
	pods, claims = map[string]Pod{}, map[string][]Pod{}
	statics := map[string][]Pod{}
	for _, o := range kube.All[*object](n.objects, resource) {
		follow, _ := o.follows()
		p := Pod{Namespace: o.Namespace, Name: o.Name, Hostname: o.Name, Claims: o.Spec.claims, Complete: true,
			Unfollowed: !follow, containers: map[string]string{}}
		if o.Spec.Hostname != "" {
			p.Hostname = o.Spec.Hostname
		}
		if o.Spec.HostNetwork {
			p.Hostname = o.Spec.NodeName
		}
		for _, ip := range o.Status.IPs {
			p.IPs = append(p.IPs, ip.IP)
		}
		for _, s := range append(o.Status.Containers, o.Status.InitContainers...) {
			if _, number, ok := strings.Cut(s.ID, "://"); ok {
				p.containers[number] = s.Name
			}
		}
		for _, owner := range o.Owners {
			if !owner.Controller {
				continue
			}
			p.OwnerKind, p.Owner = owner.Kind, owner.Name
			// A ReplicaSet goes with the next change of its Deployment, whose name is in its own.
			if name, ok := strings.CutSuffix(owner.Name, "-"+o.Labels.Hash); ok && owner.Kind == "ReplicaSet" && o.Labels.Hash != "" {
				p.OwnerKind, p.Owner = "Deployment", name
			}
			// A static pod's copy is owned by its node, which is no controller of databases.
			if owner.Kind == "Node" {
				p.OwnerKind, p.Owner = "", ""
			}
		}
		// Any user with the right to make pods may write the annotation, with another pod's UID. UIDs of static pods
		// have another form, unless their manifest has one.
		mirrored := o.Annotations.Mirror
		if staticForm.MatchString(mirrored) {
			statics[mirrored] = append(statics[mirrored], p)
			continue
		}
		pods[o.UID] = p
		if mirrored != "" {
			claims[mirrored] = append(claims[mirrored], p)
		}
	}
	for uid, all := range statics {
		// Two that claim one cannot be distinguished.
		if len(all) == 1 {
			pods[uid] = all[0]
		}
	}
	return pods, claims
}

// staticForm is the form of a static pod's UID: a digest that the kubelet makes.
var staticForm = regexp.MustCompile(`^[0-9a-f]{32}$`)
