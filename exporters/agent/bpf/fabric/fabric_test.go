package fabric

import (
	"maps"
	"reflect"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/plumbline/plumbline/exporters/agent/bpf/bpftest"
)

var objects = map[string]func() (*ebpf.CollectionSpec, error){"nvme": LoadNvme, "iscsi": LoadIscsi}

// The kernel's verifier accepts every program. User space sets the sizes of maps; here they are small.
func TestLoad(t *testing.T) {
	for name, load := range objects {
		t.Run(name, func(t *testing.T) {
			spec, err := load()
			if err != nil {
				t.Fatal(err)
			}
			bpftest.LoadWithoutModules(t, spec)
		})
	}
}

// One set of Go's types reads the maps of all objects.
func TestSameMaps(t *testing.T) {
	layouts := map[string]map[string][3]any{}
	for name, load := range objects {
		spec, err := load()
		if err != nil {
			t.Fatal(err)
		}
		layouts[name] = map[string][3]any{}
		for _, m := range spec.Maps {
			layouts[name][m.Name] = [3]any{m.Type, m.KeySize, m.ValueSize}
		}
		maps.DeleteFunc(layouts[name], func(name string, _ [3]any) bool { return name[0] == '.' })
	}
	if !reflect.DeepEqual(layouts["nvme"], layouts["iscsi"]) || len(layouts["nvme"]) < 8 {
		t.Errorf("maps differ: %v", layouts)
	}
	spec, err := LoadIscsiTarget()
	if err != nil {
		t.Fatal(err)
	}
	for name, layout := range layouts["nvme"] {
		if m := spec.Maps[name]; m == nil || layout != [3]any{m.Type, m.KeySize, m.ValueSize} {
			t.Errorf("map %s of targets in user space is another one: %v", name, m)
		}
	}
}
