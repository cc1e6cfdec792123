package chart

import (
	"slices"
	"testing"

	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// policy is the chart's network policy of a name with these values.
func policy(t *testing.T, name string, values ...string) (p networking.NetworkPolicy) {
	t.Helper()
	objects, text, err := template(t, values...)
	if err != nil {
		t.Fatal(text)
	}
	for _, o := range objects {
		if o.GetKind() == "NetworkPolicy" && o.GetName() == name {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p); err != nil {
				t.Fatal(err)
			}
			return p
		}
	}
	t.Fatalf("no network policy %s", name)
	return p
}

// TestMayastorPolicy checks that OpenEBS' exporter is let out to where Mayastor's REST API is, to the address' port and, as a policy sees the
// port behind a Service, to that of Mayastor's pods.
func TestMayastorPolicy(t *testing.T) {
	for url, want := range map[string]struct {
		ports     []int32
		namespace string
	}{
		"":                            {[]int32{8081}, "storage"},
		"http://rest.elsewhere:9081":  {[]int32{9081, 8081}, ""},
		"http://10.0.0.7":             {[]int32{80, 8081}, ""},
		"https://rest.example.org/v0": {[]int32{443, 8080}, ""},
	} {
		p := policy(t, "openebs-exporter-mayastor", registry, "openebs.enabled=true", "openebs.mayastor.enabled=true", "openebs.namespace=storage", "openebs.mayastor.url="+url)
		if len(p.Spec.Egress) != 4 {
			t.Fatalf("with the address %q it has %d rules, want four: for REST, io-engine and DNS in two places", url, len(p.Spec.Egress))
		}
		rule := p.Spec.Egress[0]
		var ports []int32
		for _, port := range rule.Ports {
			if port.Port == nil || port.Protocol == nil || *port.Protocol != "TCP" {
				t.Errorf("with the address %q: %v is no port of TCP", url, port)
				continue
			}
			ports = append(ports, port.Port.IntVal)
		}
		if !slices.Equal(ports, want.ports) {
			t.Errorf("with the address %q it lets out to the ports %v, want %v", url, ports, want.ports)
		}
		namespace := ""
		for _, to := range rule.To {
			if to.NamespaceSelector != nil {
				namespace += to.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
			}
		}
		if namespace != want.namespace || (len(rule.To) == 0) != (want.namespace == "") {
			t.Errorf("with the address %q it lets out to %v, want the namespace %q", url, rule.To, want.namespace)
		}
	}
}

// TestExtraEgress checks that a program's own rules are added to those of its policy.
func TestExtraEgress(t *testing.T) {
	for name, program := range map[string]string{"plumbline-agent": "agent", "openebs-exporter": "openebs", "plumbline-test": "test"} {
		before := policy(t, name, registry, "openebs.enabled=true").Spec.Egress
		port := program + ".extraEgress[0].ports[0]."
		after := policy(t, name, registry, "openebs.enabled=true", port+"port=14318", port+"protocol=TCP").Spec.Egress
		if len(after) != len(before)+1 {
			t.Errorf("%s has %d rules, with one more %d", name, len(before), len(after))
			continue
		}
		if last := after[len(before)]; len(last.Ports) != 1 || last.Ports[0].Port == nil || last.Ports[0].Port.IntVal != 14318 {
			t.Errorf("%s: its last rule is %v", name, last)
		}
	}
}

// TestExtraEgressRefused checks that a rule which would let out to everything, as it names nothing or a key that there is not, is refused.
func TestExtraEgressRefused(t *testing.T) {
	for _, program := range []string{"agent", "openebs", "test"} {
		rule := "'/" + program + "/extraEgress/0"
		for json, want := range map[string]string{
			`{}`:                         rule + "': minProperties",
			`{"ports": []}`:              rule + "/ports': minItems",
			`{"to": []}`:                 rule + "/to': minItems",
			`{"port": [{"port": 4318}]}`: rule + "': additional properties 'port'",
		} {
			refusesJSON(t, program+".extraEgress=["+json+"]", want)
		}
	}
}
