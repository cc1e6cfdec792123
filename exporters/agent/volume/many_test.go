package volume

import (
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/tests/kubetest"
)

// lists notes lists that would come in one answer, however many objects there are.
type lists struct {
	next http.RoundTripper
	mu   sync.Mutex
	bad  []string
}

func (l *lists) RoundTrip(r *http.Request) (*http.Response, error) {
	q := r.URL.Query()
	if strings.HasSuffix(r.URL.Path, "/persistentvolumes") && q.Get("watch") == "" && (q.Get("limit") == "" || q.Get("resourceVersion") == "0") {
		l.mu.Lock()
		l.bad = append(l.bad, r.URL.String())
		l.mu.Unlock()
	}
	return l.next.RoundTrip(r)
}

// What a volume of the cluster that is not near takes is a small part of its object, and no answer has all of them at
// once; those that are near are known.
func TestMemoryOfManyVolumes(t *testing.T) {
	const few, many, most = 1000, 5000, 500 // bytes
	server := kubetest.Start(t)
	made := 0
	held := func(n int) uint64 {
		server.Fill(n-made, func(i int) *unstructured.Unstructured {
			return kubetest.Volume(made+i, map[string]any{"csi": map[string]any{"driver": "csi.example.org", "volumeHandle": fmt.Sprintf("%012d", made+i)}})
		})
		made = n
		var watched lists
		config := rest.CopyConfig(server.Config)
		config.Wrap(func(next http.RoundTripper) http.RoundTripper { watched.next = next; return &watched })
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		objects, err := kube.New(config, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		k := NewKubernetes(objects, "n1")
		if err := objects.Run(t.Context()); err != nil || !objects.Synced(t.Context(), persistentVolumes) {
			t.Fatal("not listed", err)
		}
		if all, _ := k.Identities(Near{}); len(all) != n {
			t.Fatalf("%d volumes are known, want %d", len(all), n)
		}
		near, _ := k.Identities(Near{Mounted: map[string]bool{kubetest.Name(7): true, "no-volume": true}, Claims: map[string]bool{"db/claim-9": false}})
		if len(near) != 2 || near[0].Volume != kubetest.Name(7) || near[1].PersistentVolumeClaim != "claim-9" {
			t.Errorf("near are %+v", near)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		watched.mu.Lock()
		defer watched.mu.Unlock()
		if len(watched.bad) > 0 {
			t.Errorf("whole lists: %s", watched.bad)
		}
		runtime.KeepAlive(k)
		return after.HeapAlloc - before.HeapAlloc
	}
	first := held(few)
	if each := (int64(held(many)) - int64(first)) / (many - few); each > most {
		t.Errorf("%d bytes are held of each volume, want at most %d", each, most)
	} else {
		t.Logf("%d bytes are held of each volume", each)
	}
}
