package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/manifests/release/stage"
)

// platforms are what kubectl's plugin is released for, as Go and krew name them; the Makefile builds it for them.
var platforms = [][2]string{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// downloads is where a release's files are uploaded to.
const downloads = "https://github.com/plumbline/plumbline/releases/download/v"

const plugin = "kubectl-plumbline"

// krewManifest is a plugin's manifest as krew, kubectl's plugin manager, reads it.
type krewManifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Version          string         `json:"version"`
		Homepage         string         `json:"homepage"`
		ShortDescription string         `json:"shortDescription"`
		Description      string         `json:"description"`
		Caveats          string         `json:"caveats"`
		Platforms        []krewPlatform `json:"platforms"`
	} `json:"spec"`
}

type krewPlatform struct {
	Selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	} `json:"selector"`
	URI    string `json:"uri"`
	SHA256 string `json:"sha256"`
	Bin    string `json:"bin"`
}

// plugin packs kubectl's plugin for each platform, and writes the manifest by which krew installs these archives.
func (r release) plugin() error {
	license, err := os.ReadFile(filepath.Join(r.root, "LICENSE"))
	if err != nil {
		return err
	}
	m := krewManifest{APIVersion: "krew.googlecontainertools.github.com/v1alpha2", Kind: "Plugin"}
	m.Metadata.Name = strings.TrimPrefix(plugin, "kubectl-")
	m.Spec.Version = "v" + r.version
	m.Spec.Homepage = "https://github.com/plumbline/plumbline"
	m.Spec.ShortDescription = "Show where the time of databases' commits goes"
	m.Spec.Description = "Reports in words where the time of a database's commits goes on Kubernetes storage: statement, volume,\nreplicas, alerts. " +
		"It queries the cluster's Prometheus, which has the series and rules of Plumbline.\n\"check\" reports before anything is installed which nodes will work.\n"
	m.Spec.Caveats = "All but \"check\" needs Plumbline on the cluster, and the right to get services/proxy where Prometheus runs.\n"
	for _, p := range platforms {
		program, err := os.ReadFile(filepath.Join(r.root, "build", "plugin", p[0]+"-"+p[1], plugin))
		if err != nil {
			return err
		}
		archive := fmt.Sprintf("%s-%s-%s-%s.tar.gz", plugin, r.version, p[0], p[1])
		if err := stage.Pack(filepath.Join(r.out, archive), map[string][]byte{plugin: program, "LICENSE": license}, plugin); err != nil {
			return err
		}
		entry := krewPlatform{URI: downloads + r.version + "/" + archive, Bin: plugin}
		entry.Selector.MatchLabels = map[string]string{"os": p[0], "arch": p[1]}
		if entry.SHA256, err = r.digest(archive); err != nil {
			return err
		}
		m.Spec.Platforms = append(m.Spec.Platforms, entry)
	}
	text, err := yaml.Marshal(m)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, "krew-plumbline.yaml"), text, 0o644)
}
