package freeport

import (
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Each port is another one, can be listened on, and is none that an outgoing connection may take.
func TestFind(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		t.Fatal(err)
	}
	outgoing, err := strconv.Atoi(strings.Fields(string(text))[0])
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for range 100 {
		port, err := Find()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || port >= outgoing {
			t.Errorf("port %d: seen before: %v; outgoing ones begin at %d", port, seen[port], outgoing)
		}
		seen[port] = true
		l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port))
		if err != nil {
			t.Error(err)
			continue
		}
		l.Close()
	}
}
