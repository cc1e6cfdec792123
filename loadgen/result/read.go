package result

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// longest is how long a result may be: one with every slot of its distributions in use is far below.
const longest = 16 << 20

// Read reads the results that WriteJSON has written, one or several after another, as `kubectl logs` gives them with
// the log's lines between: an object begins and ends with a line of one brace.
func Read(from io.Reader) ([]Result, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, longest)
	var all []Result
	var object bytes.Buffer
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "{" && object.Len() > 0:
			return nil, fmt.Errorf("result %d is cut: another one begins in it", len(all)+1)
		case line != "{" && object.Len() == 0:
			continue
		}
		object.WriteString(line + "\n")
		if object.Len() > longest {
			return nil, fmt.Errorf("result %d has more than %d bytes", len(all)+1, longest)
		}
		if line != "}" {
			continue
		}
		var r Result
		if err := json.Unmarshal(object.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("result %d: %w", len(all)+1, err)
		}
		all = append(all, r)
		object.Reset()
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if object.Len() > 0 {
		return nil, fmt.Errorf("result %d is cut: it has no end", len(all)+1)
	}
	if len(all) == 0 {
		return nil, errors.New("there is no result in it; --once --json prints one")
	}
	return all, nil
}
