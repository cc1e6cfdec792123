package collector

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"
)

// targetsFileInterval is how soon a change of the targets file is seen.
const targetsFileInterval = 2 * time.Second

// FileSource reads the volumes to poll from a file, and again whenever it changes.
type FileSource struct {
	path string
	log  *slog.Logger
	last string // the version of the file when it was last read
}

// NewFileSource returns the source for the file at path.
func NewFileSource(path string, log *slog.Logger) *FileSource {
	return &FileSource{path: path, log: log}
}

// Run sends fleet the file's targets now and after every change, until ctx ends. A file that cannot be read keeps the
// targets as they are.
func (s *FileSource) Run(ctx context.Context, fleet *Fleet) {
	ticker := time.NewTicker(targetsFileInterval)
	defer ticker.Stop()
	for {
		s.read(ctx, fleet)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *FileSource) read(ctx context.Context, fleet *Fleet) {
	version := "absent"
	if info, err := os.Stat(s.path); err == nil {
		version = fmt.Sprint(info.ModTime().UnixNano(), info.Size())
	}
	if version == s.last {
		return
	}
	s.last = version
	targets, err := readTargets(s.path)
	if err != nil {
		fleet.BadTargets()
		s.log.Error("list of volumes", "err", err)
	}
	if err != nil && targets == nil {
		return
	}
	fleet.Set(ctx, targets)
}
