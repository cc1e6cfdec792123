package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/try"
)

// A machine without a database is no machine that cannot measure.
func TestNothingFound(t *testing.T) {
	for available, want := range map[int]string{1: "no database server was found", 0: "its kernel lacks something, or refuses it. plumbline-agent --check reports what"} {
		m, err := try.New(func(err error) { t.Error(err) })
		if err != nil {
			t.Fatal(err)
		}
		begin := time.UnixMilli(1_790_000_000_000)
		for i := range 10 {
			text := fmt.Sprintf("plumbline_feature_available{feature=\"statements\",node=\"n\"} %d\nplumbline_scrape_collector_success{collector=\"volume\"} 1\n", available)
			if _, err := m.Add(t.Context(), begin.Add(time.Duration(i)*time.Second), try.Page{Text: []byte(text), Target: map[string]string{"job": "plumbline-agent"}}); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := (&cluster{}).queryTry(t.Context(), m, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("statements available: %d: %v, want %q", available, err, want)
		}
	}
}

// The agent gets a claim's volume as the API server has it, without what may be secret. The API server is a fake one.
func TestVolumeOfClaim(t *testing.T) {
	answers := map[string]string{
		"/api/v1/namespaces/shop/persistentvolumeclaims/data": `{"spec":{"volumeName":"pv-1","storageClassName":"fast"}}`,
		"/api/v1/persistentvolumes/pv-1": `{"metadata":{"name":"pv-1","uid":"1","managedFields":[{"manager":"m"}],"annotations":{"pv.kubernetes.io/provisioned-by":"x",
			"kubectl.kubernetes.io/last-applied-configuration":"secret"},"labels":{"openebs.io/cas-type":"cstor"}},"status":{"phase":"Bound","message":"secret"},
			"spec":{"claimRef":{"namespace":"shop","name":"data"},"mountOptions":["secret"],"storageClassName":"fast","csi":{"driver":"driver.longhorn.io",
			"volumeHandle":"lh-1","volumeAttributes":{"password":"secret"}},"flexVolume":{"driver":"d","options":{"password":"secret"}},"nfs":{"server":"a","path":"/b"}}}`,
	}
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, answers[r.URL.Path]) }))
	t.Cleanup(api.Close)
	base, err := url.Parse(api.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{base: base, client: api.Client()}
	v, err := c.volume(t.Context(), "shop", "data")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(v)
	want := `{"metadata":{"name":"pv-1","labels":{"openebs.io/cas-type":"cstor"},"annotations":{"pv.kubernetes.io/provisioned-by":"x"}},` +
		`"spec":{"claimRef":{"name":"data","namespace":"shop"},"csi":{"driver":"driver.longhorn.io","volumeHandle":"lh-1"},` +
		`"flexVolume":{"driver":"d"},"nfs":{"path":"/b"},"storageClassName":"fast"},"status":{"phase":"Bound"}}`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}
