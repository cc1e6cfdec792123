package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
)

// lists are what a component may append to in an object that is there already.
var lists = [][]any{{"rules"}, {"spec", "template", "spec", "containers", 0, "args"}}

// addOptions renders the part with each of its components: what it appends to a list becomes
// conditional there, and the objects it adds are returned, for each component.
func (p part) addOptions(root string, objects []object) ([][]object, error) {
	without, err := render(root, p.from)
	if err != nil {
		return nil, err
	}
	optional := make([][]object, len(p.options))
	for i, option := range p.options {
		with, err := renderWith(root, p.from, option.dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", option.dir, err)
		}
		for _, o := range with {
			plain := find(without, o)
			if plain == nil {
				optional[i] = append(optional[i], o)
				continue
			}
			target := find(objects, o)
			for _, path := range lists {
				before, _ := at(plain, path...).([]any)
				after, _ := at(o, path...).([]any)
				if len(after) == len(before) {
					continue
				}
				more := after[len(before):]
				for j, v := range more {
					if s, ok := v.(string); ok && arguments[s] != "" {
						more[j] = arguments[s]
					}
				}
				set(target, append(at(target, path...).([]any), itemsIf(option.when, more)), path...)
				set(o, before, path...)
			}
			if !reflect.DeepEqual(o, plain) {
				return nil, fmt.Errorf("%s: changes %s in a way that the chart does not know", option.dir, name(o))
			}
		}
	}
	return optional, nil
}

// renderWith builds a kustomization with a component switched on.
func renderWith(root, dir, component string) ([]object, error) {
	manifests := filepath.Join(root, "manifests", "kubernetes")
	temp, err := os.MkdirTemp(manifests, ".render-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [../%s]\ncomponents: [../%s]\n", dir, component)
	if err := os.WriteFile(filepath.Join(temp, "kustomization.yaml"), []byte(text), 0o644); err != nil {
		return nil, err
	}
	return render(root, filepath.Base(temp))
}

// find is the object of the same kind and name; nil if there is none.
func find(objects []object, o object) object {
	for _, other := range objects {
		if name(other) == name(o) {
			return other
		}
	}
	return nil
}
