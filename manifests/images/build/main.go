// Command images makes Plumbline's container images without a Docker daemon, as tar files or
// straight into a registry.
package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/plumbline/plumbline/manifests/images"
)

func main() {
	app := kingpin.New("images", "Makes Plumbline's container images without a Docker daemon.\n\nExamples:\n"+
		"  images tar --tag=0.2.0 --arch=amd64 agent loadgen\n  images push --tag=0.2.0 --arch=amd64 --arch=arm64 --registry=registry.example.org/plumbline agent")
	app.HelpFlag.Short('h')
	b := builder{digests: map[string]string{}}
	app.Flag("root", "Root of the checkout.").Default(".").ExistingDirVar(&b.root)
	app.Flag("tag", "The images' tag: a version; latest is refused.").Required().StringVar(&b.tag)
	app.Flag("arch", "Architecture, as Go names it; may be repeated.").Default("amd64", "arm64").StringsVar(&b.archs)
	toTar := app.Command("tar", "Write each image to build/images/NAME-ARCH.tar, as `docker save` would.")
	toTar.Arg("name", "Images: the names of the Dockerfiles.").Required().StringsVar(&b.names)
	toRegistry := app.Command("push", "Push each image, of all architectures under one tag. Credentials are Docker's own.")
	toRegistry.Flag("registry", "Registry and path below which the images are put.").Required().StringVar(&b.registry)
	toRegistry.Arg("name", "Images: the names of the Dockerfiles.").Required().StringsVar(&b.names)
	command, err := app.Parse(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "images: %v; try images --help\n", err)
		os.Exit(2)
	}
	if b.tag == "latest" {
		fmt.Fprintln(os.Stderr, "images: --tag=latest: a node that has an older image of that name would keep it; give a version")
		os.Exit(2)
	}
	do := b.tar
	if command == toRegistry.FullCommand() {
		do = b.push
	}
	for _, image := range b.names {
		if err := do(image); err != nil {
			fmt.Fprintf(os.Stderr, "images: %s: %v\n", image, err)
			os.Exit(1)
		}
	}
	if command == toRegistry.FullCommand() {
		if err := b.values(); err != nil {
			fmt.Fprintf(os.Stderr, "images: %v\n", err)
			os.Exit(1)
		}
	}
}

type builder struct {
	root, tag, registry string
	archs, names        []string
	digests             map[string]string // of what was pushed, by image
}

func (b builder) image(image, arch string) (v1.Image, error) {
	d, err := images.Read(filepath.Join(b.root, "manifests", "images", image+".Dockerfile"), arch)
	if err != nil {
		return nil, err
	}
	return d.Image(b.root, arch)
}

func (b builder) tar(image string) error {
	tag, err := name.NewTag("plumbline/" + image + ":" + b.tag)
	if err != nil {
		return err
	}
	for _, arch := range b.archs {
		made, err := b.image(image, arch)
		if err != nil {
			return err
		}
		file := filepath.Join(b.root, "build", "images", image+"-"+arch+".tar")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := tarball.WriteToFile(file, tag, made); err != nil {
			return err
		}
		fmt.Println(file)
	}
	return nil
}

func (b builder) push(image string) error {
	reference, err := name.ParseReference(strings.TrimSuffix(b.registry, "/") + "/" + image + ":" + b.tag)
	if err != nil {
		return err
	}
	var index v1.ImageIndex = empty.Index
	for _, arch := range b.archs {
		made, err := b.image(image, arch)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: made,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}})
	}
	if err := remote.WriteIndex(reference, index, remote.WithAuthFromKeychain(authn.DefaultKeychain)); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	b.digests[image] = digest.String()
	fmt.Printf("%s@%s\n", reference, digest)
	return nil
}

// values writes what was pushed as values of both charts: helm upgrade --install … --reset-then-reuse-values -f
// build/images/values.yaml.
func (b builder) values() error {
	var text strings.Builder
	fmt.Fprintf(&text, "# What make push put into the registry, by digest.\nimage:\n  registry: %q\n  tag: %q\n  digests:\n", strings.TrimSuffix(b.registry, "/"), b.tag)
	for _, image := range slices.Sorted(maps.Keys(b.digests)) {
		fmt.Fprintf(&text, "    %s: %s\n", image, b.digests[image])
	}
	file := filepath.Join(b.root, "build", "images", "values.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
		return err
	}
	fmt.Println(file)
	return nil
}
