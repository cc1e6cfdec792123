package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"

	"github.com/plumbline/plumbline/manifests/images"
	"github.com/plumbline/plumbline/manifests/images/debian"
)

// materials is an image's bill of materials in CycloneDX: its files with their digests, the Go modules that its
// programs list, and the Debian packages that it has files of. It does not list C libraries that a program links
// statically; tools/*/ has their pins.
func materials(root, image, version string, d *images.Dockerfile) ([]byte, error) {
	var components []cyclonedx.Component
	modules := map[string]cyclonedx.Component{}
	content, err := d.Content(root)
	if err != nil {
		return nil, err
	}
	var statuses [][]byte
	var distribution []byte
	for _, target := range slices.Sorted(maps.Keys(content)) {
		file := filepath.Join(root, filepath.FromSlash(content[target]))
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		components = append(components, cyclonedx.Component{Type: cyclonedx.ComponentTypeFile, Name: target,
			Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sha256.Sum256(text))}}})
		switch {
		case strings.HasPrefix(target, debian.StatusFolder):
			statuses = append(statuses, text)
		case target == "/etc/os-release":
			distribution = text
		}
		info, err := buildinfo.Read(bytes.NewReader(text))
		if err != nil {
			continue // not a Go program
		}
		add := func(path, v string) {
			purl := "pkg:golang/" + path + "@" + v
			modules[purl] = cyclonedx.Component{Type: cyclonedx.ComponentTypeLibrary, BOMRef: purl, Name: path, Version: v, PackageURL: purl}
		}
		add("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			add(m.Path, m.Version)
		}
	}
	for _, purl := range slices.Sorted(maps.Keys(modules)) {
		components = append(components, modules[purl])
	}
	packages, err := debianPackages(statuses, distribution)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", image, err)
	}
	components = append(components, packages...)
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{Type: cyclonedx.ComponentTypeContainer, Name: "plumbline/" + image, Version: version}}
	bom.Components = &components
	var b bytes.Buffer
	err = cyclonedx.NewBOMEncoder(&b, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
	return b.Bytes(), err
}

// digest is a released file's.
func (r release) digest(name string) (string, error) {
	text, err := os.ReadFile(filepath.Join(r.out, name))
	return fmt.Sprintf("%x", sha256.Sum256(text)), err
}

// provenance writes an in-toto statement with SLSA's predicate: from which commit, by which command, which files were
// made. It is not signed; the uploader signs it.
func (r release) provenance() error {
	type object = map[string]any
	names, err := r.made()
	if err != nil {
		return err
	}
	var subjects []object
	for _, n := range names {
		sum, err := r.digest(n)
		if err != nil {
			return err
		}
		subjects = append(subjects, object{"name": n, "digest": object{"sha256": sum}})
	}
	text, err := json.MarshalIndent(object{
		"_type":         "https://in-toto.io/Statement/v1",
		"subject":       subjects,
		"predicateType": "https://slsa.dev/provenance/v1",
		"predicate": object{
			"buildDefinition": object{
				"buildType":            "https://github.com/plumbline/plumbline/blob/main/manifests/release",
				"externalParameters":   object{"version": r.version, "architectures": r.archs, "images": r.images},
				"resolvedDependencies": []object{{"uri": "git+https://github.com/plumbline/plumbline", "digest": object{"gitCommit": r.commit}}},
			},
			"runDetails": object{"builder": object{"id": "https://github.com/plumbline/plumbline/blob/main/Makefile"}},
		},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "provenance.intoto.json"), append(text, '\n'), 0o644)
}

// checksums writes SHA256SUMS, as sha256sum --check takes it.
func (r release) checksums() error {
	names, err := r.made()
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, n := range names {
		sum, err := r.digest(n)
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s  %s\n", sum, n)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(b.String()), 0o644)
}
