package chart

import (
	"slices"
	"testing"

	networking "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// as is an object as its Go type.
func as[T any](t *testing.T, o *unstructured.Unstructured) (typed T) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &typed); err != nil {
		t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
	}
	return typed
}

// policy is the chart's network policy of a name with these values.
func policy(t *testing.T, name string, values ...string) networking.NetworkPolicy {
	t.Helper()
	return as[networking.NetworkPolicy](t, find(t, render(t, values...), "NetworkPolicy", name))
}

// ports are the TCP ports of an egress rule.
func ports(t *testing.T, rule networking.NetworkPolicyEgressRule) (numbers []int32) {
	t.Helper()
	for _, port := range rule.Ports {
		if port.Port == nil || port.Protocol == nil || *port.Protocol != "TCP" {
			t.Errorf("%v is no port of TCP", port)
			continue
		}
		numbers = append(numbers, port.Port.IntVal)
	}
	return numbers
}

// TestPolicies checks that nothing but Prometheus' namespace reaches a pod, at the port metrics alone; that a policy
// allows egress for the pods of one program only, as policies add up, and one that selects all pods would give every
// other program what one needs; and that what resolves names may do so on OpenShift and of a node's cache, too.
func TestPolicies(t *testing.T) {
	objects := render(t, slices.Concat(matrix["every program"], matrix["otlp"], []string{"nodeNamespace=plumbline-node", "prometheus.namespace=metrics"})...)
	resolve, closed := 0, 0
	for _, o := range objects {
		if o.GetKind() != "NetworkPolicy" {
			continue
		}
		p := as[networking.NetworkPolicy](t, o)
		selector, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		if err != nil || selector.Empty() {
			t.Errorf("%s selects every pod of %s, which may have others': %v", p.Name, p.Namespace, err)
			continue
		}
		if p.Name == "plumbline-default" {
			closed++
			from := p.Spec.Ingress
			if len(p.Spec.PolicyTypes) != 2 || len(p.Spec.Egress) > 0 || len(from) != 1 || len(from[0].From) != 1 || len(from[0].Ports) != 1 ||
				from[0].From[0].NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] != "metrics" || from[0].Ports[0].Port.StrVal != "metrics" {
				t.Errorf("%s/%s is %v", p.Namespace, p.Name, p.Spec)
			}
			continue
		}
		programs := map[string]bool{}
		for _, o := range objects {
			of, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
			if o.GetKind() == "Pod" {
				of = o.GetLabels()
			}
			if o.GetNamespace() == p.Namespace && len(of) > 0 && selector.Matches(labels.Set(of)) {
				programs[of["app.kubernetes.io/name"]] = true
			}
		}
		if len(programs) != 1 || len(p.Spec.Ingress) > 0 {
			t.Errorf("%s/%s is for the programs %v, want one, and allows what comes in: %v", p.Namespace, p.Name, programs, p.Spec.Ingress)
		}
		allowed := dnsOf(p)
		if len(allowed) == 0 {
			continue
		}
		resolve++
		for place := range dns {
			if got := allowed[place]; !slices.Equal(got, []string{"TCP", "UDP"}) {
				t.Errorf("%s allows DNS of %s by %v, want TCP and UDP", p.Name, place, got)
			}
		}
	}
	if resolve != 4 || closed != 2 {
		t.Errorf("%d policies allow DNS, want those of OTLP, Mayastor, the events and the test; %d close a namespace, want two", resolve, closed)
	}
}

// dns is where names are resolved, by namespace, or by address where that is no pod's (NodeLocal DNSCache, in the
// node's network): the policy sees the pods' port, which is another one on OpenShift.
var dns = map[string]int32{"kube-system": 53, "openshift-dns": 5353, "169.254.20.10/32": 53}

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

// TestMayastorPolicy checks that OpenEBS' exporter is let out to where Mayastor's REST API is, to the address' port
// and, as a policy sees the port behind a Service, to that of Mayastor's pods.
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
		if got := ports(t, rule); !slices.Equal(got, want.ports) {
			t.Errorf("with the address %q it lets out to the ports %v, want %v", url, got, want.ports)
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
	for name, program := range map[string]string{"plumbline-agent": "agent", "openebs-exporter": "openebs", "plumbline-test": "test", "plumbline-events": "verdict"} {
		before := policy(t, name, registry, "openebs.enabled=true", "verdict.events=true").Spec.Egress
		port := program + ".extraEgress[0].ports[0]."
		after := policy(t, name, registry, "openebs.enabled=true", "verdict.events=true", port+"port=14318", port+"protocol=TCP").Spec.Egress
		if len(after) != len(before)+1 {
			t.Errorf("%s has %d rules, with one more %d", name, len(before), len(after))
			continue
		}
		if last := after[len(before)]; len(last.Ports) != 1 || last.Ports[0].Port == nil || last.Ports[0].Port.IntVal != 14318 {
			t.Errorf("%s: its last rule is %v", name, last)
		}
	}
}

// TestExtraEgressRefused checks that a rule which would let out to everything, as it names nothing or a key that there
// is not, is refused.
func TestExtraEgressRefused(t *testing.T) {
	for _, program := range []string{"agent", "openebs", "test", "verdict"} {
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

// TestAPIServerPorts checks that the exporters with an account may reach the API server, at the ports that a value
// names and at no other; by default at those that API servers listen on: managed ones and k3s, kubeadm and OpenShift,
// minikube, MicroK8s.
func TestAPIServerPorts(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   []int32
	}{
		{matrix["every program"], []int32{443, 6443, 8443, 16443}},
		{append(matrix["every program"], "networkPolicies.apiServerPorts={6444,9443}"), []int32{6444, 9443}},
	} {
		objects := render(t, c.values...)
		for _, name := range []string{"plumbline-agent", "longhorn-node-exporter", "longhorn-exporter", "openebs-exporter", "plumbline-events"} {
			p := as[networking.NetworkPolicy](t, find(t, objects, "NetworkPolicy", name))
			if len(p.Spec.Egress) == 0 || len(p.Spec.Egress[0].To) > 0 {
				t.Errorf("%s has no rule for the API server, which has no pod to select", name)
			} else if got := ports(t, p.Spec.Egress[0]); !slices.Equal(got, c.want) {
				t.Errorf("%s may reach the ports %v, want %v", name, got, c.want)
			}
		}
	}
}

// TestNoAPIServerPorts checks that an empty list of ports, which a network policy takes for every port, is refused.
func TestNoAPIServerPorts(t *testing.T) {
	refusesJSON(t, "networkPolicies.apiServerPorts=[]", "'/networkPolicies/apiServerPorts': minItems")
}
