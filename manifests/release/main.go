// Command release makes everything that a maintainer uploads for a version: image archives, the
// charts, kubectl's plugin, an archive for a machine without a cluster, bundles of rules and dashboards, a bill of materials for each program, a statement of
// provenance, checksums, and the version's section of the changelog. The same checkout and the same
// programs make the same bytes.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/plumbline/plumbline/manifests/images"
	"github.com/plumbline/plumbline/manifests/release/stage"
)

type release struct {
	root, version, helm, commit string
	archs, images               []string
	out                         string
}

// parse reads the command line, and returns the command.
func parse(arguments []string) (string, release, error) {
	app := kingpin.New("release", "Makes what a checkout has only the sources of.\n\nExamples:\n"+
		"  release rules build\n  release chart\n  release all --release=0.2.0 --arch=amd64 agent loadgen\n  make release VERSION=0.2.0")
	app.HelpFlag.Short('h')
	r := release{}
	app.Flag("root", "Root of the checkout.").Default(".").ExistingDirVar(&r.root)
	app.Flag("helm", "Helm, which packs the charts.").Default("build/bin/helm").StringVar(&r.helm)

	files := app.Command("rules", "Writes rules and dashboards for every kind of histograms that a Prometheus may store: rules/*, rules/either, rules/classic, dashboards/*, dashboards/classic.")
	files.Arg("folder", "The folder to write into.").Required().StringVar(&r.out)

	chart := app.Command("chart", "Writes the charts, with the same rules and dashboards, as a folder and an archive each.")
	chart.Flag("out", "The folder to write into.").Default("build/chart").StringVar(&r.out)

	all := app.Command("all", "Makes everything that is uploaded for a version, into build/release/VERSION.")
	// A flag of the name "version" would be taken for kingpin's own, and no other flag would get its default.
	all.Flag("release", "The version, as Chart.yaml and CHANGELOG.md have it.").Required().StringVar(&r.version)
	all.Flag("commit", "The commit that is released, for the statement of provenance.").Default("unknown").StringVar(&r.commit)
	all.Flag("arch", "Architecture, as Go names it; may be repeated.").Default("amd64", "arm64").StringsVar(&r.archs)
	all.Arg("image", "Images: the names of the Dockerfiles.").Required().StringsVar(&r.images)
	command, err := app.Parse(arguments)
	return command, r, err
}

func main() {
	command, r, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "release: %v; try release --help\n", err)
		os.Exit(2)
	}
	do := map[string]func() error{"rules": r.rules, "chart": r.charts, "all": r.make}[command]
	if err := do(); err != nil {
		fmt.Fprintf(os.Stderr, "release: %v\n", err)
		os.Exit(1)
	}
}

// rules writes rules and dashboards alone.
func (r release) rules() error {
	files, err := stage.Files()
	if err != nil {
		return err
	}
	return stage.Write(r.out, files)
}

// required are the values that a chart has no default of.
var required = map[string][]string{"plumbline-bench": {"classes={local-path}"}}

// charts writes a folder and an archive of each chart; Helm checks the folder first.
func (r release) charts() error {
	folders, err := stage.Charts(r.root)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	for _, folder := range folders {
		files, err := stage.Chart(r.helm, folder)
		if err != nil {
			return err
		}
		if err := stage.Write(r.out, files); err != nil {
			return err
		}
		name, version := chartOf(files)
		staged := filepath.Join(r.out, name)
		values := append([]string{"image.registry=registry.example.org/plumbline"}, required[name]...)
		lint := exec.Command(r.helm, "lint", "--quiet", "--strict", "--set="+strings.Join(values, ","), staged)
		if text, err := lint.CombinedOutput(); err != nil {
			return fmt.Errorf("helm lint %s: %w: %s", staged, err, text)
		}
		archive := filepath.Join(r.out, name+"-"+version+".tgz")
		if err := stage.Pack(archive, files); err != nil {
			return err
		}
		fmt.Printf("%s, and as a folder %s\n", archive, staged)
	}
	return nil
}

func (r release) make() error {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`).MatchString(r.version) {
		return fmt.Errorf("--release=%s: not a version such as 0.2.0", r.version)
	}
	r.out = filepath.Join(r.root, "build", "release", r.version)
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"changelog", r.changelog}, {"images and bills of materials", r.archives}, {"chart", r.chart},
		{"rules and dashboards", r.bundles}, {"kubectl's plugin", r.plugin}, {"a machine's archive", r.host}, {"provenance", r.provenance}, {"checksums", r.checksums},
	} {
		fmt.Println(step.name)
		if err := step.do(); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	fmt.Println(r.out)
	return nil
}

// changelog writes the version's section; a version without one is not released.
func (r release) changelog() error {
	text, err := os.ReadFile(filepath.Join(r.root, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	_, after, found := strings.Cut(string(text), "\n## "+r.version)
	if !found {
		return fmt.Errorf("CHANGELOG.md has no section %q", "## "+r.version)
	}
	section, _, _ := strings.Cut(after, "\n## ")
	_, section, _ = strings.Cut(section, "\n")
	return os.WriteFile(filepath.Join(r.out, "CHANGES.md"), []byte("# Plumbline "+r.version+"\n\n"+strings.TrimSpace(section)+"\n"), 0o644)
}

// archives writes each image as `docker save` would, and a bill of materials of the programs in it.
func (r release) archives() error {
	for _, image := range r.images {
		for _, arch := range r.archs {
			d, err := images.Read(filepath.Join(r.root, "manifests", "images", image+".Dockerfile"), arch)
			if err != nil {
				return err
			}
			made, err := d.Image(r.root, arch)
			if err != nil {
				return err
			}
			tag, err := name.NewTag("plumbline/" + image + ":" + r.version)
			if err != nil {
				return err
			}
			file := fmt.Sprintf("plumbline-%s-%s-%s", image, r.version, arch)
			if err := tarball.WriteToFile(filepath.Join(r.out, file+".tar"), tag, made); err != nil {
				return err
			}
			bill, err := materials(r.root, image, r.version, d)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(r.out, file+".cdx.json"), bill, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// chart packs the charts, without the checkout's times.
func (r release) chart() error {
	folders, err := stage.Charts(r.root)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		files, err := stage.Chart(r.helm, folder, "--version="+r.version, "--app-version="+r.version)
		if err != nil {
			return err
		}
		name, _ := chartOf(files)
		if err := stage.Pack(filepath.Join(r.out, "chart-"+name+"-"+r.version+".tgz"), files); err != nil {
			return err
		}
	}
	return nil
}

// chartOf returns the name and the version of a chart.
func chartOf(files map[string][]byte) (name, version string) {
	for file, text := range files {
		folder, rest, _ := strings.Cut(file, "/")
		if rest != "Chart.yaml" {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if v, ok := strings.CutPrefix(line, "version:"); ok {
				return folder, strings.Trim(v, " \"\n")
			}
		}
	}
	return "", ""
}

// bundles packs rules and dashboards for users without the chart.
func (r release) bundles() error {
	made, err := stage.Files()
	if err != nil {
		return err
	}
	for bundle, patterns := range map[string][]string{
		"rules":      {"rules/optional/*.rules.yaml", "rules/runbooks/*.md", "docs/install/stores.md", "docs/operate/alerts.md", "docs/operate/metrics.md"},
		"dashboards": {"docs/operate/dashboards.md"},
	} {
		files := map[string][]byte{}
		add := func(name string, text []byte) { files["plumbline-"+r.version+"/"+name] = text }
		for name, text := range made {
			if strings.HasPrefix(name, bundle+"/") {
				add(name, text)
			}
		}
		for _, pattern := range patterns {
			found, err := filepath.Glob(filepath.Join(r.root, filepath.FromSlash(pattern)))
			if err != nil {
				return err
			}
			if len(found) == 0 {
				return fmt.Errorf("no file %s", pattern)
			}
			for _, f := range found {
				text, err := os.ReadFile(f)
				if err != nil {
					return err
				}
				relative, err := filepath.Rel(r.root, f)
				if err != nil {
					return err
				}
				add(filepath.ToSlash(relative), text)
			}
		}
		if err := stage.Pack(filepath.Join(r.out, fmt.Sprintf("plumbline-%s-%s.tar.gz", bundle, r.version)), files); err != nil {
			return err
		}
	}
	return nil
}

// made are the files of the release so far, sorted.
func (r release) made() ([]string, error) {
	entries, err := os.ReadDir(r.out)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names, err
}
