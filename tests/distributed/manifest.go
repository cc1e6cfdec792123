package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// arguments are those of the one container in manifests/examples/thanos/NAME.yaml, with what only a cluster has
// replaced by what is here. An argument that becomes empty is left out.
func arguments(t *rig.Scope, name string, here ...string) []string {
	path := filepath.Join(testkit.Root(), "manifests", "examples", "thanos", name+".yaml")
	given, err := readArguments(path)
	t.Check(err)
	replace := strings.NewReplacer(here...)
	var all []string
	for _, one := range given {
		if one = replace.Replace(one); one != "" {
			all = append(all, one)
		}
	}
	return all
}

// readArguments finds the workload among a file's objects.
func readArguments(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var object struct {
			Spec struct {
				Template struct {
					Spec struct {
						Containers []struct{ Args []string }
					}
				}
			}
		}
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return nil, fmt.Errorf("%s: no workload", path)
		case err != nil:
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if c := object.Spec.Template.Spec.Containers; len(c) == 1 {
			return c[0].Args, nil
		}
	}
}
