package images_test

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"log"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/plumbline/plumbline/manifests/images"
)

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"FROM debian\nENTRYPOINT [\"/x\"]":                                ":1: FROM debian: only images from scratch",
		"FROM scratch\nRUN true":                                          ":2: RUN is not known here",
		"FROM scratch\nCOPY x":                                            ":2: COPY: needs a source and a destination",
		"FROM scratch\nCOPY a b /c":                                       ":2: COPY: destination /c: must be absolute, and a folder",
		"FROM scratch\nCOPY a/ /b":                                        ":2: COPY: destination /b: must be a folder ending in /",
		"FROM scratch\nCOPY a/ /\nCOPY b/ /":                              ":3: COPY: to / goes a/ already",
		"FROM scratch\nCOPY a b":                                          ":2: COPY: destination b: must be absolute",
		"FROM scratch\nENTRYPOINT /x":                                     ":2: ENTRYPOINT: not a list",
		"FROM scratch\nCOPY a /a":                                         "no ENTRYPOINT",
		"FROM scratch\nENTRYPOINT [\"/x\"]":                               "no files",
		"FROM scratch\nARG VERSION\nCOPY a /a":                            ":2: ARG VERSION: only TARGETARCH",
		"# only this\n\nFROM scratch\nLABEL a=b\n\nENTRYPOINT [\"/x\"]\n": ":4: LABEL is not known here",
	} {
		file := filepath.Join(t.TempDir(), "Dockerfile")
		write(t, file, text)
		if _, err := images.Read(file, "amd64"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestFolder copies a folder with all that is in it; what is no file is refused.
func TestFolder(t *testing.T) {
	context := t.TempDir()
	dockerfile := filepath.Join(context, "Dockerfile")
	write(t, dockerfile, "FROM scratch\nCOPY tree/ /\nCOPY other /bin/one\nENTRYPOINT [\"/bin/one\"]\n")
	d, err := images.Read(dockerfile, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Image(context, "amd64"); err == nil || !strings.Contains(err.Error(), "COPY tree/: ") || !strings.Contains(err.Error(), "the Dockerfile's first lines have the command that makes it") {
		t.Errorf("without the folder: %v", err)
	}
	write(t, filepath.Join(context, "tree/bin/one"), "of the tree")
	write(t, filepath.Join(context, "tree/bin/deep/two"), "two")
	write(t, filepath.Join(context, "other"), "by itself")
	got := content(t, image(t, d, context))
	if len(got) != 2 || got["bin/one"] != "by itself" || got["bin/deep/two"] != "two" {
		t.Errorf("%v", got)
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(context, "tree/bin/link")); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Image(context, "amd64"); err == nil || !strings.Contains(err.Error(), "tree/bin/link: neither file nor folder") {
		t.Errorf("with a link: %v", err)
	}
}

// TestWholeArchive: a layer ends as a tar archive must, with its last file's block filled up and two empty ones,
// without which GNU tar refuses it.
func TestWholeArchive(t *testing.T) {
	context := t.TempDir()
	dockerfile := filepath.Join(context, "Dockerfile")
	write(t, dockerfile, "FROM scratch\nCOPY one /one\nENTRYPOINT [\"/one\"]\n")
	write(t, filepath.Join(context, "one"), "no whole block")
	d, err := images.Read(dockerfile, "amd64")
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image(t, d, context).Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%v, %d layers", err, len(layers))
	}
	stream, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	text, err := io.ReadAll(stream)
	if err != nil || len(text)%512 != 0 || !bytes.HasSuffix(text, make([]byte, 1024)) {
		t.Errorf("%v, a layer of %d bytes that ends with %q", err, len(text), text[max(0, len(text)-20):])
	}
}

// TestDockerfiles makes every image from stand-ins of its files.
func TestDockerfiles(t *testing.T) {
	files, _ := filepath.Glob("*.Dockerfile")
	made := 0
	for _, file := range files {
		d, err := images.Read(file, "arm64")
		if err != nil {
			t.Error(err)
			continue
		}
		context := t.TempDir()
		for target, source := range d.Files {
			write(t, filepath.Join(context, source), target)
		}
		for target, source := range d.Folders {
			write(t, filepath.Join(context, source, "some/file"), filepath.Join(target, "some/file"))
		}
		first, second := image(t, d, context), image(t, d, context)
		if digest(t, first) != digest(t, second) {
			t.Errorf("%s: the same files make two images", file)
		}
		config, err := first.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.OS != "linux" || config.Architecture != "arm64" || config.Config.User != "65532:65532" || (len(config.Config.ExposedPorts) == 1) != (file != "kubectl-plumbline.Dockerfile") {
			t.Errorf("%s: config %+v", file, config)
		}
		got := content(t, first)
		targets, err := d.Content(context)
		if err != nil || len(targets) != len(d.Files)+len(d.Folders) {
			t.Errorf("%s: %v, content %v", file, err, targets)
		}
		for target := range targets {
			if got[strings.TrimPrefix(target, "/")] != target {
				t.Errorf("%s: %s is not in the image: %v", file, target, slices.Sorted(maps.Keys(got)))
			}
		}
		if program := d.Entrypoint[0]; got[strings.TrimPrefix(program, "/")] == "" {
			t.Errorf("%s: its program %s is not in the image", file, program)
		}
		made++
	}
	if made != 7 {
		t.Errorf("%d images made", made)
	}
}

func image(t *testing.T, d *images.Dockerfile, context string) v1.Image {
	t.Helper()
	i, err := d.Image(context, "arm64")
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func digest(t *testing.T, i v1.Image) string {
	t.Helper()
	d, err := i.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return d.String()
}

// content returns the files of an image.
func content(t *testing.T, i v1.Image) map[string]string {
	t.Helper()
	files := map[string]string{}
	stream := mutate.Extract(i)
	defer stream.Close()
	r := tar.NewReader(stream)
	for {
		header, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if _, err := io.Copy(&b, r); err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeReg {
			if header.Mode != 0o755 || header.Uid != 0 {
				t.Errorf("%s has mode %o and owner %d", header.Name, header.Mode, header.Uid)
			}
			files[header.Name] = b.String()
		}
	}
}

// TestPush pushes one image for two architectures to a registry, and gets each back.
func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	root := t.TempDir()
	dockerfile, err := os.ReadFile("agent.Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(root, "manifests/images/agent.Dockerfile"), string(dockerfile))
	for _, arch := range []string{"amd64", "arm64"} {
		write(t, filepath.Join(root, "build/linux", arch, "plumbline-agent"), "for "+arch)
		write(t, filepath.Join(root, "build/linux", arch, "tools/fio"), "fio for "+arch)
	}
	write(t, filepath.Join(root, "manifests/images/loadgen-tools.Dockerfile"), "FROM scratch\nARG TARGETARCH\nCOPY build/linux/${TARGETARCH}/tools/ /bin/\nENTRYPOINT [\"/bin/fio\"]\n")
	repository := strings.TrimPrefix(server.URL, "http://") + "/plumbline"
	cmd := exec.Command("go", "run", "./build", "push", "--root="+root, "--tag=v1", "--arch=amd64", "--arch=arm64", "--registry="+repository, "agent", "loadgen-tools")
	output, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	reference, err := name.ParseReference(repository + "/agent:v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"amd64", "arm64"} {
		got, err := remote.Image(reference, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
		if err != nil {
			t.Fatal(err)
		}
		if text := content(t, got)["plumbline-agent"]; text != "for "+arch {
			t.Errorf("the image for %s holds %q", arch, text)
		}
	}
	// The chart's values name the chart's images alone: it refuses others.
	values, err := os.ReadFile(filepath.Join(root, "build/images/values.yaml"))
	if err != nil || !strings.Contains(string(values), "    agent: sha256:") || !strings.Contains(string(values), "    loadgen-tools: sha256:") || !strings.Contains(string(output), "/loadgen-tools:v1@sha256:") {
		t.Errorf("%v, values:\n%s\noutput:\n%s", err, values, output)
	}
	if !strings.Contains(string(output), fmt.Sprint(reference)) {
		t.Errorf("it prints %s", output)
	}
}

// TestPrograms: a program that the image could not run is refused, with the file's name.
func TestPrograms(t *testing.T) {
	context := t.TempDir()
	for _, arch := range []string{"amd64", "arm64"} {
		cmd := exec.Command("go", "build", "-o", filepath.Join(context, arch), "./testdata/program")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, output)
		}
	}
	// One that may lie anywhere in memory names a loader, also without any library.
	cmd := exec.Command("go", "build", "-buildmode=pie", "-o", filepath.Join(context, "loaded"), "./testdata/program")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=arm64")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	write(t, filepath.Join(context, "text"), "\x7fELF, a text")
	for _, c := range []struct{ file, arch, want string }{
		{"amd64", "amd64", ""}, {"arm64", "arm64", ""}, {"text", "arm64", ""},
		{"amd64", "arm64", "COPY amd64: a program for EM_X86_64 in an image for arm64"},
		{"arm64", "amd64", "COPY arm64: a program for EM_AARCH64 in an image for amd64"},
		{"loaded", "arm64", "COPY loaded: the program is not static, and its loader /lib/ld-linux-aarch64.so.1 is not in the image"},
	} {
		d := &images.Dockerfile{Files: map[string]string{"/program": c.file}, Entrypoint: []string{"/program"}}
		if _, err := d.Image(context, c.arch); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s in an image for %s: %v, want %q", c.file, c.arch, err, c.want)
		}
	}
	d := &images.Dockerfile{Files: map[string]string{"/program": "loaded", "/lib/ld-linux-aarch64.so.1": "text"}, Entrypoint: []string{"/program"}}
	if _, err := d.Image(context, "arm64"); err != nil {
		t.Errorf("with its loader: %v", err)
	}
}
