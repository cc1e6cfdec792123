package shape

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protojson"
)

// shapeFile is a shape as it is kept, so that the lab need not run while one measures.
type shapeFile struct {
	Class        string
	Devices      []string
	Node, Volume map[string][]json.RawMessage // metric families by job
}

// Save keeps it in a file.
func (s *Shape) Save(path string) error {
	f := shapeFile{Class: s.Class, Devices: s.Devices}
	var err error
	if f.Node, err = encode(s.Node); err != nil {
		return err
	}
	if f.Volume, err = encode(s.Volume); err != nil {
		return err
	}
	data, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// Load reads what Save has written.
func Load(path string) (*Shape, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%w; write it with --save-shape while a lab runs", err)
	}
	var f shapeFile
	if err := json.Unmarshal(data, &f); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s := &Shape{Class: f.Class, Devices: f.Devices}
	if s.Node, err = decode(f.Node); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if s.Volume, err = decode(f.Volume); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

func encode(jobs map[string][]*dto.MetricFamily) (map[string][]json.RawMessage, error) {
	encoded := map[string][]json.RawMessage{}
	for job, families := range jobs {
		for _, f := range families {
			data, err := protojson.Marshal(f)
			if err != nil {
				return nil, err
			}
			encoded[job] = append(encoded[job], data)
		}
	}
	return encoded, nil
}

func decode(encoded map[string][]json.RawMessage) (map[string][]*dto.MetricFamily, error) {
	jobs := map[string][]*dto.MetricFamily{}
	for _, job := range slices.Sorted(maps.Keys(encoded)) {
		for _, data := range encoded[job] {
			f := &dto.MetricFamily{}
			if err := protojson.Unmarshal(data, f); err != nil {
				return nil, fmt.Errorf("job %s: %w", job, err)
			}
			jobs[job] = append(jobs[job], f)
		}
	}
	return jobs, nil
}
