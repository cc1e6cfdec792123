package result

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/plumbline/plumbline/loadgen/internal/logged"
)

// Read reads the results of generators that WriteJSON has written, one or several after another, with the lines of a log between.
func Read(from io.Reader) ([]Part, error) {
	objects, err := logged.Objects(from)
	if err != nil {
		return nil, err
	}
	var all []Part
	for i, text := range objects {
		var r Part
		if err := json.Unmarshal(text, &r); err != nil {
			return nil, fmt.Errorf("result %d: %w", i+1, err)
		}
		all = append(all, r)
	}
	return all, nil
}
