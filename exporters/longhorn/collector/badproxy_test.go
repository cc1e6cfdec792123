package collector

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// offline is the configuration of a client that is never used.
var offline = &rest.Config{Host: "https://127.0.0.1:1"}

// badProxy is between exporter and API server and misbehaves on demand.
type badProxy struct {
	url    string
	server *httptest.Server

	mu     sync.Mutex
	expire string // resource whose next watch is answered with 410 Gone
	gone   bool
}

func newBadProxy(t *testing.T, config *rest.Config) *badProxy {
	t.Helper()
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	upstream, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	forward := httputil.NewSingleHostReverseProxy(upstream)
	forward.Transport = transport
	forward.FlushInterval = -1
	p := &badProxy{}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		gone := p.gone
		expire := p.expire != "" && strings.HasSuffix(r.URL.Path, "/"+p.expire) && r.URL.Query().Get("watch") == "true"
		if expire {
			p.expire = ""
		}
		p.mu.Unlock()
		switch {
		case gone:
			http.Error(w, "away", http.StatusServiceUnavailable)
		case expire:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}`)
		default:
			forward.ServeHTTP(w, r)
		}
	}))
	p.url = p.server.URL
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

// expireNext cuts the watches under way and answers the next one of resource with 410 Gone.
func (p *badProxy) expireNext(resource string) {
	p.mu.Lock()
	p.expire = resource
	p.mu.Unlock()
	p.server.CloseClientConnections()
}

// away makes the server unreachable, or reachable again.
func (p *badProxy) away(gone bool) {
	p.mu.Lock()
	p.gone = gone
	p.mu.Unlock()
	p.server.CloseClientConnections()
}
