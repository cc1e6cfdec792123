package pod

import (
	"errors"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

const resource = "pods"

// follow makes objects follow the pods of one node.
func follow(objects *kube.Objects, node string) {
	kube.FollowSelected[object](objects, schema.GroupVersionResource{Version: "v1", Resource: resource}, "spec.nodeName="+node, keep)
}

// mirrorOf is the UID that the kubelet knows a static pod by; the API server has given its copy of the pod another one.
const mirrorOf = "kubernetes.io/config.mirror"

// object is what is read of a Pod.
type object struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Hostname    string `json:"hostname"`
		HostNetwork bool   `json:"hostNetwork"`
		NodeName    string `json:"nodeName"`
		// Claims are the names of the PersistentVolumeClaims that it uses, see keep.
		Claims []string `json:"claims"`
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

type status struct {
	Name string `json:"name"`
	ID   string `json:"containerID"` // containerd://0123…
}

// keep drops what is not read, such as the environment with its passwords, before it is kept.
func keep(u *unstructured.Unstructured) {
	kept := map[string]any{}
	for _, path := range [][]string{
		{"apiVersion"}, {"kind"},
		{"metadata", "name"}, {"metadata", "namespace"}, {"metadata", "uid"}, {"metadata", "resourceVersion"},
		{"metadata", "ownerReferences"}, {"metadata", "labels", hashLabel}, {"metadata", "annotations", mirrorOf},
		{"spec", "hostname"}, {"spec", "hostNetwork"}, {"spec", "nodeName"},
		{"status", "phase"}, {"status", "podIPs"}, {"status", "containerStatuses"}, {"status", "initContainerStatuses"},
	} {
		if value, ok, err := unstructured.NestedFieldNoCopy(u.Object, path...); ok && err == nil {
			// Only what Set cannot take apart fails, and that is none of a server's answers.
			_ = unstructured.SetNestedField(kept, value, path...)
		}
	}
	if claims := claimsOf(u); len(claims) > 0 {
		_ = unstructured.SetNestedStringSlice(kept, claims, "spec", "claims")
	}
	u.Object = kept
}

// claimsOf are the names of the PersistentVolumeClaims that a pod uses, those that are made for it among them.
func claimsOf(u *unstructured.Unstructured) (claims []string) {
	volumes, _, _ := unstructured.NestedFieldNoCopy(u.Object, "spec", "volumes")
	list, _ := volumes.([]any)
	for _, v := range list {
		one, _ := v.(map[string]any)
		if name, ok, err := unstructured.NestedString(one, "persistentVolumeClaim", "claimName"); ok && err == nil {
			claims = append(claims, name)
		}
		if _, ok := one["ephemeral"]; ok {
			if name, ok, err := unstructured.NestedString(one, "name"); ok && err == nil {
				claims = append(claims, u.GetName()+"-"+name)
			}
		}
	}
	return claims
}

// Claims returns the PersistentVolumeClaims that running pods of the node use, as NAMESPACE/NAME.
func (n *Node) Claims() map[string]bool {
	claims := map[string]bool{}
	for _, o := range kube.All[*object](n.objects, resource) {
		if o.Status.Phase != "Running" {
			continue // its volumes need not be there yet, or any more
		}
		for _, name := range o.Spec.Claims {
			claims[o.Namespace+"/"+name] = true
		}
	}
	return claims
}

// Odd implements kube.Object.
func (*object) Odd() string { return "" }

// Check tells what cannot be true of a pod.
func (o *object) Check() error {
	if o.Namespace == "" || o.Name == "" || o.UID == "" {
		return errors.New("a pod without namespace, name or UID")
	}
	return nil
}

// hashLabel is on the pods of a Deployment: the end of their ReplicaSet's name.
const hashLabel = "pod-template-hash"

// fromAPI returns the pods that the API server told of, by UID, and by other UIDs those that say they are static pods with them, which needs proof.
func (n *Node) fromAPI() (pods map[string]Pod, claims map[string][]Pod) {
	pods, claims = map[string]Pod{}, map[string][]Pod{}
	statics := map[string][]Pod{}
	for _, o := range kube.All[*object](n.objects, resource) {
		p := Pod{Namespace: o.Namespace, Name: o.Name, Hostname: o.Name, Complete: true, containers: map[string]string{}}
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
		for _, owner := range o.OwnerReferences {
			if owner.Controller == nil || !*owner.Controller {
				continue
			}
			p.OwnerKind, p.Owner = owner.Kind, owner.Name
			// A ReplicaSet goes with the next change of its Deployment, whose name is in its own.
			if name, ok := strings.CutSuffix(owner.Name, "-"+o.Labels[hashLabel]); ok && owner.Kind == "ReplicaSet" && o.Labels[hashLabel] != "" {
				p.OwnerKind, p.Owner = "Deployment", name
			}
			// A static pod's copy is owned by its node, which is no controller of databases.
			if owner.Kind == "Node" {
				p.OwnerKind, p.Owner = "", ""
			}
		}
		// Anybody who may make pods may write the annotation, with another pod's UID. Those of static pods are of another form, unless
		// their manifest has one.
		mirrored := o.Annotations[mirrorOf]
		if staticForm.MatchString(mirrored) {
			statics[mirrored] = append(statics[mirrored], p)
			continue
		}
		pods[string(o.UID)] = p
		if mirrored != "" {
			claims[mirrored] = append(claims[mirrored], p)
		}
	}
	for uid, all := range statics {
		// Two that claim one are not told apart.
		if len(all) == 1 {
			pods[uid] = all[0]
		}
	}
	return pods, claims
}

// staticForm is the form of a static pod's UID: a digest that the kubelet makes.
var staticForm = regexp.MustCompile(`^[0-9a-f]{32}$`)
