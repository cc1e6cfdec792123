package matrix

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/internal/given"
)

// Target is one storage class to try.
type Target struct {
	// StorageClass names it in the result.
	StorageClass string `yaml:"storageclass" json:"storageclass"`
	// Database is what the canary calls the database, where a class has several: a baseline pins each.
	Database string `yaml:"database" json:"database,omitempty"`
	// Server is the agent's name of the server whose layers a matrix reads; without, those of the server that answers.
	Server string `yaml:"server" json:"server,omitempty"`
	// Local marks the class the others are compared with: a plain local disk.
	Local bool `yaml:"local" json:"local,omitempty"`
	// Replicas is how many copies the class keeps; it stands in the result.
	Replicas int `yaml:"replicas" json:"replicas"`
	// Directory is on the class's volume, for fio.
	Directory string `yaml:"directory" json:"-"`
	// Engine and DSN are the database on the class's volume, for the others.
	Engine string `yaml:"engine" json:"engine,omitempty"`
	DSN    string `yaml:"dsn" json:"-"`
	// DSNFile is a file that holds DSN, such as a mounted Secret's key. A relative path starts at the folder of the
	// file of targets.
	DSNFile string `yaml:"dsn_file" json:"-"`
}

// ReadTargets reads a file of targets:
//
//	targets:
//	  - {storageclass: local, local: true, replicas: 1, directory: /srv/local, dsn: host=/run/local}
func ReadTargets(path string) ([]Target, error) {
	return readTargets(path, byClass)
}

// byClass is the key of targets of which a class has one.
func byClass(t Target) string { return "storageclass " + t.StorageClass }

// ReadDatabases is ReadTargets with as many targets of a class as it has databases, such as a single instance and a
// synchronous cluster.
func ReadDatabases(path string) ([]Target, error) {
	return readTargets(path, func(t Target) string {
		if t.Database == "" {
			return "storageclass " + t.StorageClass + " without a database"
		}
		return "database " + t.Database + " of storageclass " + t.StorageClass
	})
}

// readTargets reads targets, of which no two may have the same key.
func readTargets(path string, key func(Target) string) ([]Target, error) {
	text, err := given.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var file struct {
		Targets []Target `yaml:"targets"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := checkTargets(file.Targets, filepath.Dir(path), key); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return file.Targets, nil
}

// CheckTargets checks targets that a file in folder has beside other things, of which a class has one. It fills in
// their engines, and the connection strings that are in files.
func CheckTargets(targets []Target, folder string) error {
	return checkTargets(targets, folder, byClass)
}

// checkTargets is CheckTargets for any key.
func checkTargets(targets []Target, folder string, key func(Target) string) error {
	if len(targets) == 0 {
		return errors.New("no targets")
	}
	seen := map[string]bool{}
	local := 0
	for i := range targets {
		t := &targets[i]
		if t.Engine == "" {
			t.Engine = "postgres"
		}
		switch {
		case t.StorageClass == "":
			return fmt.Errorf("target %d has no storageclass", i+1)
		case seen[key(*t)]:
			return fmt.Errorf("%s is there twice", key(*t))
		case t.Engine != "postgres" && t.Engine != "mysql":
			return fmt.Errorf("storageclass %s: unknown engine %q", t.StorageClass, t.Engine)
		}
		seen[key(*t)] = true
		if err := t.readDSN(folder); err != nil {
			return fmt.Errorf("storageclass %s: %w", t.StorageClass, err)
		}
		if t.Local {
			local++
		}
	}
	if local > 1 {
		return errors.New("only one target can be local")
	}
	return nil
}

// readDSN reads the connection string from its file, if it is in one. Line ends around it, as files and blocks of YAML
// have them, are none of it.
func (t *Target) readDSN(folder string) error {
	if t.DSNFile == "" {
		t.DSN = strings.TrimSpace(t.DSN)
		return nil
	}
	if t.DSN != "" {
		return errors.New("both dsn and dsn_file are given: keep one of them")
	}
	path := t.DSNFile
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	text, err := given.ReadFile(path)
	if err != nil {
		return fmt.Errorf("dsn_file: %w", err)
	}
	if t.DSN = strings.TrimSpace(string(text)); t.DSN == "" {
		return fmt.Errorf("dsn_file: %s is empty: write the connection string into it", path)
	}
	return nil
}

// Pauses between two tries of Await, and how long one may take.
const (
	awaitEvery = time.Second
	awaitTry   = 10 * time.Second
)

// Await returns when the database of each target answers, at the latest after most. Targets without one are not waited
// for.
func Await(ctx context.Context, targets []Target, most time.Duration, log *slog.Logger) error {
	ctx, stop := context.WithTimeout(ctx, most)
	defer stop()
	for _, t := range targets {
		for tries := 0; t.DSN != ""; tries++ {
			try, stop := context.WithTimeout(ctx, awaitTry)
			_, err := driver.Address(try, t.Engine, t.DSN)
			stop()
			if err == nil {
				break
			}
			if tries == 0 {
				log.Info("waiting for a database", "storageclass", t.StorageClass, "for", most, "err", err)
			}
			select {
			case <-ctx.Done():
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					return fmt.Errorf("the database of storageclass %s did not answer within %s: %w", t.StorageClass, most, err)
				}
				return ctx.Err()
			case <-time.After(awaitEvery):
			}
		}
	}
	return nil
}
