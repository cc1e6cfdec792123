// Package images makes container images of the Dockerfiles beside it without a Docker daemon: all
// of them only copy files into an empty image.
package images

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"
)

// Dockerfile is the content of a Dockerfile of the kind understood here.
type Dockerfile struct {
	// Files are the image's files: where each is in the image, and in the context.
	Files map[string]string
	// Folders are copied with all that is in them, in the same way; files go before.
	Folders    map[string]string
	User       string
	Ports      []string
	Entrypoint []string
}

// Read reads a Dockerfile for an architecture, as Go names it. What cannot be done without a
// daemon, or is not known here, is an error that names the line.
func Read(file, arch string) (*Dockerfile, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := &Dockerfile{Files: map[string]string{}, Folders: map[string]string{}}
	for number, line := range strings.Split(string(text), "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		instruction, rest, _ := strings.Cut(line, " ")
		if err := d.add(instruction, strings.ReplaceAll(strings.TrimSpace(rest), "${TARGETARCH}", arch)); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, number+1, err)
		}
	}
	switch {
	case len(d.Entrypoint) == 0:
		return nil, fmt.Errorf("%s: no ENTRYPOINT", file)
	case len(d.Files)+len(d.Folders) == 0:
		return nil, fmt.Errorf("%s: no files", file)
	}
	return d, nil
}

func (d *Dockerfile) add(instruction, rest string) error {
	switch instruction {
	case "FROM":
		if rest != "scratch" {
			return fmt.Errorf("FROM %s: only images from scratch can be made without Docker", rest)
		}
	case "ARG":
		if rest != "TARGETARCH" {
			return fmt.Errorf("ARG %s: only TARGETARCH is known", rest)
		}
	case "COPY":
		return d.copy(strings.Fields(rest))
	case "USER":
		d.User = rest
	case "EXPOSE":
		d.Ports = append(d.Ports, strings.Fields(rest)...)
	case "ENTRYPOINT":
		if err := json.Unmarshal([]byte(rest), &d.Entrypoint); err != nil {
			return fmt.Errorf("ENTRYPOINT: not a list in brackets: %w", err)
		}
	default:
		return fmt.Errorf("%s is not known here", instruction)
	}
	return nil
}

func (d *Dockerfile) copy(fields []string) error {
	if len(fields) < 2 {
		return fmt.Errorf("COPY: needs a source and a destination")
	}
	sources, to := fields[:len(fields)-1], fields[len(fields)-1]
	folder := strings.HasSuffix(to, "/")
	if !strings.HasPrefix(to, "/") || len(sources) > 1 && !folder {
		return fmt.Errorf("COPY: destination %s: must be absolute, and a folder ending in / for several files", to)
	}
	for _, source := range sources {
		if strings.HasSuffix(source, "/") {
			if !folder {
				return fmt.Errorf("COPY: destination %s: must be a folder ending in /, as %s is one", to, source)
			}
			if other, there := d.Folders[to]; there {
				return fmt.Errorf("COPY: to %s goes %s already; one folder to a place", to, other)
			}
			d.Folders[to] = source
			continue
		}
		target := to
		if folder {
			target = path.Join(to, path.Base(source))
		}
		d.Files[target] = source
	}
	return nil
}
