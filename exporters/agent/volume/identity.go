// Package volume maps block devices to volumes: from mount tables and sysfs, and from the sources that know the
// volumes' names.
package volume

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"go.yaml.in/yaml/v3"
)

// Identity names one volume in Kubernetes' terms.
type Identity struct {
	// Mountpoint is where the volume is mounted, in the host's mount namespace or else in any other one of the node, if
	// all that have something there have the same. The volume exists while something is mounted there.
	Mountpoint string `yaml:"mountpoint"`
	// Directory is, instead, a folder on a file system that the volume shares with others.
	Directory string `yaml:"directory"`
	// Kubelet is, instead, the name of the PersistentVolume whose mount below the kubelet's folder of pods is meant,
	// and Plugin the folder there; not for files. Where no pod has it, Directory is meant, if it is not empty.
	Kubelet string `yaml:"-"`
	Plugin  string `yaml:"-"`
	// InUse is set if the volume is here only while a container uses its Directory.
	InUse bool `yaml:"-"`
	// elsewhere is set if it is on some node only, which may be this one by a name that is not known.
	elsewhere bool
	// ambiguous is set if its folder is another volume's, too, so that either may be here.
	ambiguous bool

	Volume                string `yaml:"volume"`
	Namespace             string `yaml:"namespace"`
	PersistentVolumeClaim string `yaml:"persistentvolumeclaim"`
	// ClaimUID is the claim's UID; empty where no API server knows the claim.
	ClaimUID     string `yaml:"-"`
	StorageClass string `yaml:"storageclass"`
	// Backend is the storage backend: disk, longhorn-v1, …
	Backend string `yaml:"backend"`
	Pod     string `yaml:"pod"`
}

func (i Identity) check() error {
	switch {
	case i.Volume == "":
		return errors.New("volume is empty")
	case (i.Mountpoint == "") == (i.Directory == ""):
		return fmt.Errorf("volume %s: give either mountpoint or directory", i.Volume)
	}
	return nil
}

// File is an identity file: it names a machine's volumes where no Kubernetes API does. It is
// read again whenever it has changed; a version that cannot be read leaves the last good one
// in force.
type File struct {
	path     string
	node     string
	modified time.Time
	size     int64
	good     []Identity
}

// NewFile returns the identity file at path, which is read by the first Identities, on the Kubernetes node of this name.
func NewFile(path, node string) *File { return &File{path: path, node: node} }

// Identities returns the volumes the file names, wherever they are. With an error, it returns those of its last
// good version.
func (f *File) Identities(Near) ([]Identity, error) {
	info, err := os.Stat(f.path)
	if err != nil {
		return f.good, fmt.Errorf("identity file: %w", err)
	}
	if info.ModTime().Equal(f.modified) && info.Size() == f.size {
		return f.good, nil
	}
	text, err := os.ReadFile(f.path)
	if err != nil {
		return f.good, fmt.Errorf("identity file: %w", err)
	}
	identities, err := parse(text, f.node)
	if err != nil {
		return f.good, fmt.Errorf("identity file %s: %w", f.path, err)
	}
	f.good, f.modified, f.size = identities, info.ModTime(), info.Size()
	return f.good, nil
}

func parse(text []byte, node string) ([]Identity, error) {
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	var content struct {
		Volumes []Identity `yaml:"volumes"`
		// PersistentVolumes are objects as the API server has them, of volumes that pods of this node use.
		PersistentVolumes []any `yaml:"persistentvolumes"`
	}
	if err := d.Decode(&content); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	for n, i := range content.Volumes {
		if err := i.check(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", n+1, err)
		}
	}
	for n, object := range content.PersistentVolumes {
		i, err := usedHere(object, node)
		if err != nil {
			return nil, fmt.Errorf("persistentvolumes: entry %d: %w", n+1, err)
		}
		content.Volumes = append(content.Volumes, i)
	}
	seen, points := map[string]bool{}, map[string]bool{}
	for n, i := range content.Volumes {
		if seen[i.Volume] {
			return nil, fmt.Errorf("entry %d: volume %s is named twice", n+1, i.Volume)
		}
		if i.Mountpoint != "" && points[i.Mountpoint] {
			return nil, fmt.Errorf("entry %d: volume %s: mountpoint %s is another volume's", n+1, i.Volume, i.Mountpoint)
		}
		seen[i.Volume], points[i.Mountpoint] = true, true
	}
	return content.Volumes, nil
}

// usedHere identifies a PersistentVolume that a pod of the node uses.
func usedHere(object any, node string) (Identity, error) {
	var v persistentVolume
	text, err := json.Marshal(object)
	if err == nil {
		err = json.Unmarshal(text, &v)
	}
	if err != nil {
		return Identity{}, fmt.Errorf("no PersistentVolume: %w", err)
	}
	kept, ok := v.keep(node).(*bound)
	if !ok {
		return Identity{}, fmt.Errorf("PersistentVolume %q is not bound to a claim, or has no source that can be mounted", v.Name)
	}
	i := kept.identity()
	i.elsewhere, i.InUse = false, false
	return i, nil
}
