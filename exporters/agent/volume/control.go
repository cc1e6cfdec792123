package volume

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// controlMark is the label or annotation of a StorageClass that makes it a control.
const controlMark = "plumbline.io/control"

// Controls knows the control classes: the storage classes that the others are compared with, as
// nothing but the host can slow them. They are named by a flag, or marked on the cluster with
// the label or annotation plumbline.io/control: "true". There may be several, or none.
type Controls struct {
	named   []string
	objects *kube.Objects
}

// NewControls returns the controls that are named: each name may be a list, separated by commas or
// spaces.
func NewControls(names ...string) (*Controls, error) {
	c := &Controls{}
	for _, list := range names {
		for _, name := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
			if wrong := validation.IsDNS1123Subdomain(name); len(wrong) > 0 {
				return nil, fmt.Errorf("control class %q is no name of a storage class: %s", name, wrong[0])
			}
			c.named = append(c.named, name)
		}
	}
	return c, nil
}

// Follow adds the StorageClasses of the cluster that are marked. It makes objects follow StorageClasses, so it must
// come before they are run. Without the right to list them only the named ones are known, which the connection's own
// metrics show.
func (c *Controls) Follow(objects *kube.Objects) {
	c.objects = objects
	kube.Follow[storageClass](objects, kube.Kind{Group: "storage.k8s.io", Versions: []string{"v1"}, Resource: "storageclasses"}, nil)
}

// Classes returns the names of the control classes, each once and in order.
func (c *Controls) Classes() []string {
	if c == nil {
		return nil
	}
	classes := map[string]bool{}
	for _, name := range c.named {
		classes[name] = true
	}
	if c.objects != nil {
		for name, s := range kube.All[*storageClass](c.objects, "storageclasses") {
			if s.mark() == "true" {
				classes[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(classes))
}

// storageClass is what is read of a StorageClass.
type storageClass struct {
	classMeta `json:"metadata"`
}

type classMeta struct {
	kube.Meta
	Labels      mark `json:"labels"`
	Annotations mark `json:"annotations"`
}

// mark is the mark among labels or annotations: controlMark.
type mark struct {
	Control *string `json:"plumbline.io/control"`
}

// mark is the value of the label or, without it, of the annotation.
func (s *storageClass) mark() string {
	for _, m := range []mark{s.Labels, s.Annotations} {
		if m.Control != nil {
			return *m.Control
		}
	}
	return ""
}

// UnknownValue implements kube.Object: a mark that is neither "true" nor "false" is no mark.
func (s *storageClass) UnknownValue() string {
	switch v := s.mark(); v {
	case "", "true", "false":
		return ""
	default:
		return controlMark + "=" + v
	}
}
