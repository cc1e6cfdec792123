package collector

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// A kind that the exporter may not list fails what reads it, and stops neither the polling of engines nor the other
// collectors.
func TestForbiddenKinds(t *testing.T) {
	forbidden := []string{"volumes", "replicas", "nodes"}
	lists := map[string][]any{}
	for _, o := range kubetest.Read(t, "testdata/objects-1.11.1.yaml") {
		resource := strings.ToLower(o.GetKind()) + "s"
		lists[resource] = append(lists[resource], o.Object)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		w.Header().Set("Content-Type", "application/json")
		switch {
		case slices.Contains(forbidden, resource):
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"not yours"}`)
		case r.URL.Query().Get("watch") == "true":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			json.NewEncoder(w).Encode(map[string]any{"kind": "List", "apiVersion": "longhorn.io/v1beta2", "metadata": map[string]any{"resourceVersion": "1"}, "items": lists[resource]})
		}
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	log := slog.New(slog.DiscardHandler)
	cluster, err := NewCluster(&rest.Config{Host: server.URL}, namespace, "", log)
	if err != nil {
		t.Fatal(err)
	}
	if err := cluster.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	fleet := NewFleet(FleetOptions{Log: log, Poll: Poll{EngineInterval: time.Second, StateInterval: time.Second, Timeout: time.Second}, Engines: true})
	go cluster.Feed(t.Context(), fleet)
	o := Options{Log: log, ProcFS: "/proc", SysFS: "/sys", RootFS: "/", Cluster: cluster, Fleet: fleet}
	registry := prometheus.NewRegistry()
	set := exporterkit.NewSetWithTimeout(log, testkit.DefaultTimeout)
	set.Add("kubernetes", cluster)
	for _, e := range All() {
		set.Add(e.Name, e.New(o))
	}
	registry.MustRegister(set)
	success := func(collector string) string {
		return fmt.Sprintf("plumbline_scrape_collector_success{collector=%q}", collector)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		return gather(t, registry).want(map[string]float64{
			`plumbline_longhorn_engine_up{volume="pvc-3"}`: 0,
			success("kubernetes"):                          0, success("volume"): 0, success("node"): 0, success("replica"): 0, success("engine"): 1,
		})
	})
}
