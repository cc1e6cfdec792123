package query

import (
	"net/netip"
	"slices"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/server"
)

// maxAddresses bounds the addresses of one server.
const maxAddresses = 8

// endpoint is where a server can be reached.
type endpoint struct{ address, port string }

// endpoints returns where a server can be reached: at its pod's addresses, elsewhere at those that it listens on,
// wildcards left out; in a pod also by its host's name, where a server reports nothing else of itself.
func endpoints(s server.Server, in *pod.Pod) []endpoint {
	var all []endpoint
	add := func(address string, port uint16) {
		if e := (endpoint{address, strconv.Itoa(int(port))}); address != "" && !slices.Contains(all, e) && len(all) < maxAddresses {
			all = append(all, e)
		}
	}
	for _, l := range s.Listening {
		switch at := l.Addr(); {
		case at.IsLoopback():
			// Within a pod or a container it leads nowhere else.
			if in == nil && !s.Apart {
				add(at.WithZone("").String(), l.Port())
			}
			continue
		case !at.IsUnspecified():
			add(at.WithZone("").String(), l.Port())
		case in != nil:
			for _, text := range in.IPs {
				// The wildcard of IPv6 takes IPv4, too.
				if ip, err := netip.ParseAddr(text); err == nil && (ip.Unmap().Is4() || at.Is6()) {
					add(ip.Unmap().String(), l.Port())
				}
			}
		}
		if in != nil && s.DBSystem.CallsItselfByHost() {
			add(in.Hostname, l.Port())
		}
	}
	return all
}

// sendEndpoints reports where a server can be reached.
func (f *fleet) sendEndpoints(ch chan<- prometheus.Metric, srv *trackedServer, node string) {
	for _, e := range endpoints(srv.Server, f.podOf(srv)) {
		ch <- collector.Gauge(serverAddressInfo, 1, srv.label, node, e.address, e.port)
	}
}

// podOf returns the pod of a server, or nil.
func (f *fleet) podOf(srv *trackedServer) *pod.Pod {
	if p, ok := f.pods[srv.pod.UID]; ok && srv.pod.UID != "" {
		return &p
	}
	return nil
}
