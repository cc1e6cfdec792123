// Command generate writes the chart's templates of Plumbline's programs from the kustomizations in
// manifests/kubernetes: these stay the one source of each object, and the chart adds the values
// that users set. A place that a value fills is a hole (holes.go); which holes an object has is
// said in parts.go. What has no counterpart in the kustomizations is written by hand in
// templates/: helpers, rules, dashboards, the test, OpenShift.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

//go:generate go run . -root ../../..

func main() {
	root := flag.String("root", ".", "Root of the checkout.")
	out := flag.String("out", "", "Folder to write to; manifests/chart/templates of the checkout if empty.")
	flag.Parse()
	if *out == "" {
		*out = filepath.Join(*root, "manifests", "chart", "templates")
	}
	for _, p := range parts {
		if err := p.write(*root, *out); err != nil {
			fmt.Fprintf(os.Stderr, "generate: %s: %v\n", p.template, err)
			os.Exit(1)
		}
	}
}

// object is a Kubernetes object as a kustomization renders it.
type object = map[string]any

// render builds a kustomization below manifests/kubernetes, as `kubectl kustomize` would.
func render(root, dir string) ([]object, error) {
	path, err := filepath.Abs(filepath.Join(root, "manifests", "kubernetes", filepath.FromSlash(dir)))
	if err != nil {
		return nil, err
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), path)
	if err != nil {
		return nil, err
	}
	var objects []object
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		if err != nil {
			return nil, err
		}
		o := object{}
		if err := yaml.Unmarshal(text, &o); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
	return objects, nil
}
