package collector

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// Backend names, as in the label "backend" of the shared vocabulary.
const (
	// BackendV1 is Longhorn's first data engine: one user-space process per volume and replica.
	BackendV1 = "longhorn-v1"
	// BackendV2 is Longhorn's SPDK data engine.
	BackendV2 = "longhorn-v2"
)

// Target is a volume whose engine and replicas are polled.
type Target struct {
	Volume string `yaml:"volume"`
	// Engine is host:port of the engine's own gRPC server.
	Engine string `yaml:"engine"`
	// EngineName is the engine instance's name; an engine refuses calls meant for another
	// instance. Empty: only the volume's name is compared.
	EngineName string          `yaml:"engine_name,omitempty"`
	Backend    string          `yaml:"backend,omitempty"`
	Replicas   []ReplicaTarget `yaml:"replicas,omitempty"`

	// Manager is, on a cluster, the address of the instance manager that runs the engine. V1 engines are queried
	// through its proxy, V2 engines through its SPDK service.
	Manager string `yaml:"-"`
	// desired is how many replicas the volume is meant to have; 0 if that is known elsewhere.
	desired int
	// names are of replicas that the engine may list and that are not in Replicas, by address.
	names map[string]string
}

// ReplicaTarget is one replica of a Target.
type ReplicaTarget struct {
	Name string `yaml:"name"`
	// Address is host:port of the replica's gRPC server, as the engine names it; the data
	// connection is on the next port and the sync agent on the one after it.
	Address string `yaml:"address"`
	// Directory is where the replica keeps its files; the exporter finds the disk under it.
	Directory string `yaml:"directory,omitempty"`
	// Node and Device override what the exporter finds out: --node and the disk of Directory.
	Node   string `yaml:"node,omitempty"`
	Device string `yaml:"device,omitempty"`
	// Control is where to call the replica if not at Address, as on a cluster whose engines
	// reach replicas over a storage network.
	Control string `yaml:"-"`
}

type targetsFile struct {
	Targets []Target `yaml:"targets"`
}

// readTargets reads a targets file. An entry it cannot use is left out and named in the
// error; the others are returned all the same. A file that is no YAML gives no targets.
func readTargets(path string) ([]Target, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("targets file: %w", err)
	}
	var f targetsFile
	decoder := yaml.NewDecoder(bytes.NewReader(raw))
	decoder.KnownFields(true)
	if err := decoder.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("targets file %s: %w", path, err)
	}
	var good []Target
	var bad []error
	seen := map[string]bool{}
	for i, t := range f.Targets {
		if err := t.complete(); err != nil {
			bad = append(bad, fmt.Errorf("targets file %s: targets[%d]: %w", path, i, err))
			continue
		}
		if seen[t.Volume] {
			bad = append(bad, fmt.Errorf("targets file %s: targets[%d]: volume %s is listed twice", path, i, t.Volume))
			continue
		}
		seen[t.Volume] = true
		good = append(good, t)
	}
	return good, errors.Join(bad...)
}

// complete fills what may be left out and returns an error for what is wrong with the rest.
func (t *Target) complete() error {
	if t.Volume == "" {
		return errors.New("volume is missing")
	}
	if err := checkAddress(t.Engine); err != nil {
		return fmt.Errorf("volume %s: engine: %w", t.Volume, err)
	}
	if t.Backend == "" {
		t.Backend = BackendV1
	}
	if t.Backend != BackendV1 {
		return fmt.Errorf("volume %s: backend %q: a targets file can name %s only", t.Volume, t.Backend, BackendV1)
	}
	names := map[string]bool{}
	for i, r := range t.Replicas {
		if err := checkAddress(r.Address); err != nil {
			return fmt.Errorf("volume %s: replicas[%d]: address: %w", t.Volume, i, err)
		}
		if r.Name == "" {
			t.Replicas[i].Name = r.Address
		}
		if names[t.Replicas[i].Name] {
			return fmt.Errorf("volume %s: replica %s is listed twice", t.Volume, t.Replicas[i].Name)
		}
		names[t.Replicas[i].Name] = true
	}
	t.desired = len(t.Replicas)
	return nil
}

func checkAddress(address string) error {
	if address == "" {
		return errors.New("missing; expected host:port")
	}
	if _, _, err := net.SplitHostPort(address); err != nil || label.Value(address) != address {
		return fmt.Errorf("%q is not host:port", label.Value(address))
	}
	return nil
}
