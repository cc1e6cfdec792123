package main

import (
	"fmt"
	"maps"
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
		if _, err := (&cluster{}).askTry(t.Context(), m, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("statements available: %d: %v, want %q", available, err, want)
		}
	}
}

// A volume is named by where the kubelet has it. The API server is a fake one.
func TestVolumeOfClaim(t *testing.T) {
	for source, want := range map[string]map[string]string{
		`"csi":{"driver":"driver.longhorn.io","volumeHandle":"lh-1"}`: {"mountpoint": "/var/lib/kubelet/pods/1-2/volumes/kubernetes.io~csi/pv-1/mount", "backend": "driver.longhorn.io"},
		`"local":{"path":"/mnt/a"}`:                                   {"mountpoint": "/var/lib/kubelet/pods/1-2/volumes/kubernetes.io~local-volume/pv-1", "backend": "disk"},
		`"hostPath":{"path":"/mnt/a"}`:                                {"directory": "/mnt/a", "backend": "disk"},
		`"nfs":{"server":"a"}`:                                        nil,
	} {
		answers := map[string]string{
			"/api/v1/namespaces/shop/persistentvolumeclaims/data": `{"spec":{"volumeName":"pv-1","storageClassName":"fast"}}`,
			"/api/v1/persistentvolumes/pv-1":                      `{"spec":{` + source + `}}`,
		}
		api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, answers[r.URL.Path]) }))
		t.Cleanup(api.Close)
		base, err := url.Parse(api.URL)
		if err != nil {
			t.Fatal(err)
		}
		got, handle, err := (&cluster{base: base, client: api.Client()}).volume(t.Context(), "shop", "data", "1-2")
		if want == nil {
			if err == nil || !strings.Contains(err.Error(), "volume pv-1 of claim shop/data is neither") {
				t.Errorf("%s: %v, %v", source, got, err)
			}
			continue
		}
		maps.Copy(want, map[string]string{"volume": "pv-1", "namespace": "shop", "persistentvolumeclaim": "data", "storageclass": "fast"})
		if wantHandle := map[bool]string{true: "lh-1", false: "pv-1"}[strings.Contains(source, "lh-1")]; handle != wantHandle {
			t.Errorf("%s: its driver's name is %q, want %q", source, handle, wantHandle)
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %v, %v; want %v", source, got, err, want)
		}
	}
}
