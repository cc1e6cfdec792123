// Package config turns the lab's small files (classes, backends, database and monitoring
// templates) into one process-compose project and the configuration of its parts.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Class is one storage class of the lab, as read from its file in classes/, and where its parts are.
type Class struct {
	// Name is the storage class's name, and the server's and the load's.
	Name string `yaml:"storageclass"`
	// BackendFile is the name, without .yaml, of the file in backends/ that makes its volume.
	BackendFile string `yaml:"backend"`
	// Control means that the others are compared with this class: nothing but the host can slow it.
	Control bool `yaml:"control"`
	// Parameters are the class's own settings; what they mean is up to the backend.
	Parameters map[string]string `yaml:"parameters"`

	// Lab is the lab the class is part of.
	Lab *Lab `yaml:"-"`
	// Index is the class's place among the selected ones; it keeps addresses apart.
	Index int `yaml:"-"`
	// Backend is the rendered backend, filled by Load.
	Backend Backend `yaml:"-"`
}

// Backend is a file in backends/, rendered for a class.
type Backend struct {
	// Name is the value of the backend label.
	Name string `yaml:"backend"`
	// SharesDevice means that the volume is a folder on a file system that other volumes use, too.
	SharesDevice bool `yaml:"shares_device"`
	// Needs lists what the machine must allow: mount, loop, fuse, nvme.
	Needs []string `yaml:"needs"`
	// Engine is the storage backend's gRPC address, empty if it has none.
	Engine string `yaml:"engine"`
	// Replicas are the volume's replicas as they start.
	Replicas []Replica `yaml:"replicas"`
	// Metrics is the host:port at which the engine's own exporter is scraped, empty if it has none.
	Metrics string `yaml:"metrics"`
	// Programs are those of build/bin that it needs beside the lab's own.
	Programs []string `yaml:"programs"`
	// Packages names, for each program of the system it needs, the Debian package that has it.
	Packages map[string]string `yaml:"packages"`
	// Files are written into the class's folder before anything starts: content by name.
	Files map[string]string `yaml:"files"`
	// Processes is a process-compose processes section.
	Processes map[string]any `yaml:"processes"`
}

// Replica is one replica of a volume.
type Replica struct {
	Name      string `yaml:"name"`
	Address   string `yaml:"address"`
	Directory string `yaml:"directory"`
}

// Host is the replica's own loopback address.
func (r Replica) Host() string {
	host, _, _ := net.SplitHostPort(r.Address)
	return host
}

// DataAddress is where a Longhorn replica listens for its engine: the port after the control port.
func (r Replica) DataAddress() string {
	host, port, _ := net.SplitHostPort(r.Address)
	n, _ := strconv.Atoi(port)
	return net.JoinHostPort(host, strconv.Itoa(n+1))
}

// Dir is the class's folder in the lab's state.
func (c *Class) Dir() string { return filepath.Join(c.Lab.Dir, "classes", c.Name) }

// Mount is where the class's volume is mounted.
func (c *Class) Mount() string { return filepath.Join(c.Dir(), "volume") }

// DataDirectory is PostgreSQL's data directory.
func (c *Class) DataDirectory() string { return filepath.Join(c.Mount(), "pgdata") }

// MariaDBDirectory is MariaDB's data directory.
func (c *Class) MariaDBDirectory() string { return filepath.Join(c.Mount(), "mariadb") }

// MariaDB is what the agent calls the class's MariaDB, which has no name of its own.
func (c *Class) MariaDB() string { return "mariadb:" + c.MariaDBDirectory() }

// SocketDirectory is where PostgreSQL's unix socket is; it is not on the measured volume.
func (c *Class) SocketDirectory() string { return filepath.Join(c.Lab.Dir, "sockets", c.Name) }

// Volume is the volume's name, as a PersistentVolume's on a cluster.
func (c *Class) Volume() string { return c.Lab.Volume(c.Name) }

// EngineAddress is the storage backend's control address.
func (c *Class) EngineAddress() string { return fmt.Sprintf("%s:9501", c.Host(200)) }

// Host returns a loopback address of the class's own; nothing else on a machine uses 127.16/12.
func (c *Class) Host(n int) string {
	return fmt.Sprintf("127.%d.%d.%d", 16+c.Lab.PortBase/256%16, c.Index+1, n)
}

// Replicas lists the replicas of a backend, from parameters.replicas.
func (c *Class) Replicas() ([]Replica, error) {
	n, err := strconv.Atoi(c.Parameters["replicas"])
	if err != nil || n < 1 || n > 9 {
		return nil, fmt.Errorf("class %s: parameters.replicas is %q; want a number from 1 to 9", c.Name, c.Parameters["replicas"])
	}
	var replicas []Replica
	for i := 1; i <= n; i++ {
		name := fmt.Sprintf("%s-replica-%d", c.Name, i)
		replicas = append(replicas, Replica{
			Name:      name,
			Address:   fmt.Sprintf("%s:10000", c.Host(i)),
			Directory: filepath.Join(c.Dir(), "replicas", strconv.Itoa(i)),
		})
	}
	return replicas, nil
}

// Port returns the loopback port of one of the class's own exporters.
func (c *Class) Port(exporter string) (int, error) {
	i := slices.Index(classExporters, exporter)
	if i < 0 {
		return 0, fmt.Errorf("no exporter %q in a class; there are %s", exporter, strings.Join(classExporters, ", "))
	}
	return c.Lab.PortBase + firstClassPort + c.Index*len(classExporters) + i, nil
}

// writeFiles writes the backend's files into the class's folder.
func (c *Class) writeFiles() error {
	for name, content := range c.Backend.Files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("backend %s: file %q is outside the class's folder", c.BackendFile, name)
		}
		path := filepath.Join(c.Dir(), name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// classNames lists the classes that have a file.
func classNames(files string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(files, "classes", "*.yaml"))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, p := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(p), ".yaml"))
	}
	return names, nil
}

// readClass reads one class file; an unknown class is answered with the known ones.
func readClass(files, name string) (*Class, error) {
	path := filepath.Join(files, "classes", name+".yaml")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		known, _ := classNames(files)
		return nil, fmt.Errorf("unknown class %q in LAB_CLASSES; there are: %s", name, strings.Join(known, " "))
	}
	if err != nil {
		return nil, err
	}
	var c Class
	if err := decodeStrict(text, &c); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if c.Name != name {
		return nil, fmt.Errorf("%s: storageclass is %q; want the file's name %q", path, c.Name, name)
	}
	return &c, nil
}

// decodeStrict decodes YAML and refuses fields that into does not have.
func decodeStrict(text []byte, into any) error {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	return d.Decode(into)
}
