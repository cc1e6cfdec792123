package volume

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

func TestControls(t *testing.T) {
	var none *Controls
	if got := none.Classes(); got != nil {
		t.Errorf("no controls give %v", got)
	}
	c, err := NewControls("local", "fast-disk,local  spare", "")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := c.Classes(), []string{"fast-disk", "local", "spare"}; !slices.Equal(got, want) {
		t.Errorf("named controls are %v, want %v", got, want)
	}
	objects, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c.Follow(objects)
	put := func(name string, labels, annotations map[string]string) {
		u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}}
		u.SetName(name)
		u.SetLabels(labels)
		u.SetAnnotations(annotations)
		objects.Put("storageclasses", u)
	}
	marked := map[string]string{controlMark: "true"}
	put("labelled", marked, nil)
	put("annotated", nil, marked)
	put("unmarked", nil, nil)
	put("denied", map[string]string{controlMark: "false"}, marked)
	put("odd", map[string]string{controlMark: "yes"}, nil)
	if got, want := c.Classes(), []string{"annotated", "fast-disk", "labelled", "local", "spare"}; !slices.Equal(got, want) {
		t.Errorf("controls are %v, want %v", got, want)
	}
	put("labelled", nil, nil) // the mark is taken away
	if got := c.Classes(); slices.Contains(got, "labelled") {
		t.Errorf("controls are %v after the mark was taken away", got)
	}
	if unknown := (&storageClass{}).UnknownValue(); unknown != "" {
		t.Errorf("a class without a mark has an unknown value: %s", unknown)
	}
}

func TestControlNamesAreChecked(t *testing.T) {
	for _, name := range []string{"Local", "a_b", "-", strings.Repeat("a", 300)} {
		if _, err := NewControls(name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("control class %q gave %v", name, err)
		}
	}
}
