package stage

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// longest is more than any file of a chart has.
const longest = 16 << 20

// Unpack reads a gzipped tar archive's regular files.
func Unpack(file string) (map[string][]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if h.Size > longest {
			return nil, fmt.Errorf("%s: %s has %d bytes", file, h.Name, h.Size)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", file, h.Name, err)
		}
	}
}

// Pack writes files as a gzipped tar archive that depends on nothing but their names and content. The programs among
// them may be run. A name that ends with a slash is a folder.
func Pack(file string, files map[string][]byte, programs ...string) (err error) {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		kind, mode := byte(tar.TypeReg), int64(0o644)
		if strings.HasSuffix(name, "/") {
			kind = tar.TypeDir
		}
		if kind == tar.TypeDir || slices.Contains(programs, name) {
			mode = 0o755
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: kind, Name: name, Mode: mode, Size: int64(len(files[name]))}); err != nil {
			return err
		}
		if _, err := w.Write(files[name]); err != nil {
			return err
		}
	}
	return errors.Join(w.Close(), z.Close())
}
