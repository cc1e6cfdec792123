// Package logged finds results in what programs have printed: `kubectl logs` gives the results with the log's lines between.
package logged

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Longest is how long an object may be: a result with every slot of its distributions in use is far below, and so is a matrix.
const Longest = 64 << 20

// Objects returns the JSON objects that were written indented: each begins and ends with a line of one brace. One that is
// cut is an error.
func Objects(from io.Reader) ([][]byte, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, Longest)
	var all [][]byte
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
		if object.Len() > Longest {
			return nil, fmt.Errorf("result %d has more than %d bytes", len(all)+1, Longest)
		}
		if line == "}" {
			all = append(all, bytes.Clone(object.Bytes()))
			object.Reset()
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if object.Len() > 0 {
		return nil, fmt.Errorf("result %d is cut: it has no end", len(all)+1)
	}
	if len(all) == 0 {
		return nil, errors.New("there is no result in it")
	}
	return all, nil
}
