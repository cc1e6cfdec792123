package kubernetes_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// dns is where names are resolved, by namespace, or by address where that is no pod's (NodeLocal DNSCache, in the node's network):
// the policy sees the pods' port, which is another one on OpenShift.
var dns = map[string]int32{"kube-system": 53, "openshift-dns": 5353, "169.254.20.10/32": 53}

// TestPoliciesAllowDNS checks that who may ask for names anywhere may do so on OpenShift and of a node's cache, too.
func TestPoliciesAllowDNS(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(manifests(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "networkpolicy.yaml" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			var p networking.NetworkPolicy
			if err := yaml.Unmarshal([]byte(document), &p); err != nil {
				t.Errorf("%s: %v", path, err)
				continue
			}
			allowed := dnsOf(p)
			if len(allowed) == 0 {
				continue
			}
			seen++
			for place := range dns {
				if got := allowed[place]; !slices.Equal(got, []string{"TCP", "UDP"}) {
					t.Errorf("%s: %s allows DNS of %s by %v, want TCP and UDP", path, p.Name, place, got)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 4 {
		t.Errorf("%d policies allow DNS, want those of a soak, a matrix, OTLP and Mayastor at least", seen)
	}
}

// dnsOf are the protocols by which a policy allows DNS, by the DNS's namespace or address.
func dnsOf(p networking.NetworkPolicy) map[string][]string {
	allowed := map[string][]string{}
	for _, rule := range p.Spec.Egress {
		for _, to := range rule.To {
			var place string
			switch {
			case to.NamespaceSelector != nil:
				place = to.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
			case to.IPBlock != nil:
				place = to.IPBlock.CIDR
			}
			for _, port := range rule.Ports {
				if port.Port != nil && port.Protocol != nil && dns[place] != 0 && port.Port.IntVal == dns[place] {
					allowed[place] = append(allowed[place], string(*port.Protocol))
				}
			}
			slices.Sort(allowed[place])
		}
	}
	return allowed
}

// TestPoliciesOfTheirOwnPods checks that what a policy lets out is let out for the pods of its own part only: policies add up,
// and one that selects all pods of the namespace gives every other program there what its own needs.
func TestPoliciesOfTheirOwnPods(t *testing.T) {
	seen := 0
	for name, objects := range everything(t) {
		for _, o := range objects {
			if o.GetKind() != "NetworkPolicy" {
				continue
			}
			var p networking.NetworkPolicy
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p); err != nil {
				t.Fatal(err)
			}
			if len(p.Spec.Egress) == 0 {
				continue
			}
			seen++
			selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
			switch {
			case err != nil:
				t.Errorf("%s: %s: %v", name, p.Name, err)
			case selector.Empty():
				t.Errorf("%s: %s lets every pod of %s out", name, p.Name, p.Namespace)
			case !slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
				pod, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
				return o.GetNamespace() == p.Namespace && len(pod) > 0 && selector.Matches(labels.Set(pod))
			}):
				t.Errorf("%s: %s selects none of the part's pods", name, p.Name)
			}
		}
	}
	if seen == 0 {
		t.Error("no policy lets anything out")
	}
}
