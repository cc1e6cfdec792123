package images

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Image makes a Dockerfile's image for an architecture from the files below context. The same
// files make the same image, bit by bit. A program that could not run in it is an error.
func (d *Dockerfile) Image(context, arch string) (v1.Image, error) {
	content, err := d.tar(context, arch)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil })
	if err != nil {
		return nil, err
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	ports := map[string]struct{}{}
	for _, p := range d.Ports {
		ports[p+"/tcp"] = struct{}{}
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	file.OS, file.Architecture = "linux", arch
	file.Created = v1.Time{Time: time.Unix(0, 0).UTC()}
	file.Config = v1.Config{User: d.User, Entrypoint: d.Entrypoint, ExposedPorts: ports, WorkingDir: "/"}
	return mutate.ConfigFile(image, file)
}

// tar writes the files, and the folders they are in, owned by root.
func (d *Dockerfile) tar(context, arch string) ([]byte, error) {
	files, err := d.Content(context)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	folders := map[string]bool{}
	for _, target := range slices.Sorted(maps.Keys(files)) {
		var parents []string
		for p := path.Dir(target); p != "/" && !folders[p]; p = path.Dir(p) {
			folders[p] = true
			parents = append(parents, p)
		}
		for _, p := range slices.Backward(parents) {
			if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: strings.TrimPrefix(p, "/") + "/", Mode: 0o755}); err != nil {
				return nil, err
			}
		}
		file := filepath.Join(context, filepath.FromSlash(files[target]))
		info, err := os.Stat(file)
		if err != nil {
			return nil, fmt.Errorf("COPY %s: %w", files[target], err)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("COPY %s: %w", files[target], err)
		}
		if err := checkProgram(content, arch, files); err != nil {
			return nil, fmt.Errorf("COPY %s: %w", files[target], err)
		}
		// Every user of the image may read everything, whatever the builder's umask.
		mode := int64(0o644)
		if info.Mode()&0o100 != 0 {
			mode = 0o755
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: strings.TrimPrefix(target, "/"), Mode: mode, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	// Closing writes the archive's end.
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
