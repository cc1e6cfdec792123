//go:build e2e

package e2e

import (
	"encoding/json"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// names answers for the Services of the cluster, NAME.NAMESPACE.svc.cluster.local, and for
// nothing else: the node has no way out anyway. A cluster has CoreDNS for that.
type names struct {
	n         *node
	mu        sync.Mutex
	addresses map[string][4]byte
	read      time.Time
	// reading is closed when the read that is under way has ended; nil if there is none.
	reading chan struct{}
}

// serveNames answers questions by UDP on the node's address.
func (n *node) serveNames() {
	n.t.Helper()
	socket, err := net.ListenPacket("udp", n.Address+":53")
	n.must(err)
	n.t.Cleanup(func() { socket.Close() })
	s := &names{n: n, addresses: map[string][4]byte{}}
	go func() {
		for {
			question := make([]byte, 1500)
			size, from, err := socket.ReadFrom(question)
			if err != nil {
				return // the end of the test
			}
			go func() {
				if answer, err := s.answer(question[:size]); err == nil {
					socket.WriteTo(answer, from)
				}
			}()
		}
	}()
}

func (s *names) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) != 1 {
		return nil, err
	}
	query := m.Questions[0]
	reply := dnsmessage.Message{Header: dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired, RecursionAvailable: true},
		Questions: m.Questions}
	address, ok := s.find(strings.ToLower(strings.TrimSuffix(query.Name.String(), ".")))
	switch {
	case !ok:
		reply.RCode = dnsmessage.RCodeNameError
	case query.Type == dnsmessage.TypeA:
		reply.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: query.Name, Type: query.Type, Class: query.Class, TTL: 5},
			Body: &dnsmessage.AResource{A: address}}}
	}
	return reply.Pack()
}

// find looks a Service up. What is known is answered at once, however long the API server takes on a node without CPU
// left, and read again meanwhile, at most once a second: a Service that is its pods moves with them.
func (s *names) find(name string) (address [4]byte, ok bool) {
	s.mu.Lock()
	address, ok = s.addresses[name]
	ours := strings.HasSuffix(name, ".svc.cluster.local")
	if ours && s.reading == nil && time.Since(s.read) >= time.Second {
		s.reading = make(chan struct{})
		go s.refresh()
	}
	reading := s.reading
	s.mu.Unlock()
	if ok || !ours || reading == nil {
		return address, ok
	}
	<-reading
	s.mu.Lock()
	defer s.mu.Unlock()
	address, ok = s.addresses[name]
	return address, ok
}

// refresh reads all Services.
func (s *names) refresh() {
	found, err := s.services()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.addresses = found
	}
	s.read = time.Now()
	close(s.reading)
	s.reading = nil
}

func (s *names) services() (map[string][4]byte, error) {
	var list struct {
		Items []struct {
			Metadata struct {
				Name, Namespace string
				Labels          map[string]string
			}
			Spec      struct{ ClusterIP string }
			Endpoints []struct{ Addresses []string }
		}
	}
	text, err := s.n.try("get", "services,endpointslices.discovery.k8s.io", "--all-namespaces", "--output=json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &list)
	}
	if err != nil {
		return nil, err
	}
	addresses := map[string][4]byte{}
	for _, i := range list.Items {
		service, ip := i.Metadata.Name, i.Spec.ClusterIP
		// A Service without an address of its own is its pods; one is enough here.
		if of := i.Metadata.Labels["kubernetes.io/service-name"]; of != "" && len(i.Endpoints) > 0 {
			service, ip = of, i.Endpoints[0].Addresses[0]
		}
		key := service + "." + i.Metadata.Namespace + ".svc.cluster.local"
		// Services come first: the address of the Service stays.
		if ip := net.ParseIP(ip).To4(); ip != nil && addresses[key] == [4]byte{} {
			addresses[key] = [4]byte(ip)
		}
	}
	return addresses, nil
}
