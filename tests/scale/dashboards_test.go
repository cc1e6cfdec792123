package main

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/tests/promapi"
)

// A variable's All is what Grafana makes of it: the list that Prometheus returns, unless the variable has a value for
// all. Queries are over the selected time range and of the choice.
func TestVariablesAreFilledAsByGrafana(t *testing.T) {
	var requests []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests = append(requests, r.URL.Path+" "+r.FormValue("match[]"))
		if r.FormValue("start") == "" {
			t.Error("of all times")
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"status":"success","data":["v1","v2"]}`))
	}))
	defer server.Close()
	api, err := promapi.At(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	p := &prometheus{Server: api}
	variables := map[string][]dashboards.Variable{"page": {
		{Name: "class", Selector: "info", Label: "storageclass", All: ".*"},
		{Name: "pvc", Selector: "info", Label: "pvc", All: ".*"},
		{Name: "volume", Selector: `info{class=~"$class",pvc=~"$pvc"}`, Label: "volume"},
	}}
	values, err := p.chosen(t.Context(), variables, map[string][]string{"pvc": {"data-0"}, "server": {"of another page"}}, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{"class": ".*", "pvc": "data-0", "volume": "(v1|v2)"}; !maps.Equal(values["page"], want) {
		t.Errorf("have %v, want %v", values["page"], want)
	}
	if want := []string{`/api/v1/label/volume/values info{class=~".*",pvc=~"data-0"}`}; !slices.Equal(requests, want) {
		t.Errorf("queried %q, want %q", requests, want)
	}
}
