package kubetest

import (
	"slices"
	"testing"

	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// APIServerPorts are those that API servers listen on: managed ones and k3s, kubeadm and OpenShift, minikube, MicroK8s.
var APIServerPorts = []int32{443, 6443, 8443, 16443}

// CheckAPIServerPorts checks that a network policy's first rule lets its pods out to these ports of any address, and to no other port.
func CheckAPIServerPorts(t *testing.T, o *unstructured.Unstructured, want ...int32) {
	t.Helper()
	var p networking.NetworkPolicy
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Spec.Egress) == 0 || len(p.Spec.Egress[0].To) > 0 {
		t.Errorf("%s has no rule for the API server, which has no pod to select", p.Name)
		return
	}
	var ports []int32
	for _, port := range p.Spec.Egress[0].Ports {
		if port.Port == nil || port.Protocol == nil || *port.Protocol != "TCP" {
			t.Errorf("%s: %v is no port of TCP", p.Name, port)
			continue
		}
		ports = append(ports, port.Port.IntVal)
	}
	if !slices.Equal(ports, want) {
		t.Errorf("%s lets its pods out to the ports %v, want %v", p.Name, ports, want)
	}
}
