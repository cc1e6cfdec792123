package config

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"text/template"

	"github.com/alecthomas/units"
	"go.yaml.in/yaml/v3"
)

// render fills in one template. The delimiters are [[ ]], because process-compose and
// Prometheus use {{ }} themselves.
func render(path string, data any) ([]byte, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	t, err := template.New(filepath.Base(path)).Delims("[[", "]]").Option("missingkey=error").
		Funcs(template.FuncMap{"bytes": bytesOf, "fuseDirectory": fuseDirectory}).Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var out bytes.Buffer
	if err := t.Execute(&out, data); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out.Bytes(), nil
}

// renderYAML fills in a template and decodes the result strictly.
func renderYAML(path string, data, into any) error {
	text, err := render(path, data)
	if err != nil {
		return err
	}
	if err := decodeStrict(text, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

func writeYAML(path string, content any) error {
	text, err := yaml.Marshal(content)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, text, 0o644)
}

// fuseDirectory is the shell's words for an empty folder to mount a FUSE file system on: one whose
// server was killed leaves its mount behind, which answers nothing but errors.
func fuseDirectory(path string) string {
	return fmt.Sprintf("umount --quiet --lazy %[1]s 2>/dev/null || true; mkdir -p %[1]s", path)
}

// bytesOf turns a size like 4GiB into a number of bytes.
func bytesOf(size string) (int64, error) {
	n, err := units.ParseBase2Bytes(size)
	if err != nil {
		return 0, fmt.Errorf("size %q: %w; write it like 4GiB", size, err)
	}
	return int64(n), nil
}
