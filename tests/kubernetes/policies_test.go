package kubernetes_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	networking "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// dns is where names are resolved: the policy sees the pods' port, which is another one on OpenShift.
var dns = map[string]int32{"kube-system": 53, "openshift-dns": 5353}

// TestPoliciesAllowDNS checks that who may ask for names anywhere may do so on OpenShift, too.
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
			for namespace := range dns {
				if !slices.Contains(allowed, namespace) {
					t.Errorf("%s: %s allows DNS in %v, not in %s", path, p.Name, allowed, namespace)
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Error("no policy allows DNS")
	}
}

// dnsOf are the namespaces whose DNS a policy allows, by UDP and TCP.
func dnsOf(p networking.NetworkPolicy) (namespaces []string) {
	for _, rule := range p.Spec.Egress {
		for _, to := range rule.To {
			if to.NamespaceSelector == nil {
				continue
			}
			namespace := to.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
			protocols := 0
			for _, port := range rule.Ports {
				if port.Port != nil && dns[namespace] != 0 && port.Port.IntVal == dns[namespace] {
					protocols++
				}
			}
			if protocols == 2 {
				namespaces = append(namespaces, namespace)
			}
		}
	}
	return namespaces
}
