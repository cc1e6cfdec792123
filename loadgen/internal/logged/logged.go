// Package logged finds results in what programs have printed: `kubectl logs` gives the results with the log's lines
// between.
package logged

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Longest is how long an object may be: a result with every slot of its distributions in use is far below, and so is a
// matrix.
const Longest = 64 << 20

// Object is a JSON object in a text.
type Object struct {
	Text []byte
	// Line is the number of its first line.
	Line int
}

// Objects returns the JSON objects that were written indented: each begins and ends with a line of one brace. Those
// that are cut are an error, which names where they are; the others are returned with it.
func Objects(from io.Reader) ([]Object, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, Longest)
	var all []Object
	var object bytes.Buffer
	var errs []error
	began, number, found := 0, 0, 0
	for lines.Scan() {
		line := bytes.TrimSuffix(lines.Bytes(), []byte("\r"))
		number++
		switch {
		case string(line) == "{":
			if object.Len() > 0 {
				errs = append(errs, fmt.Errorf("result %d is cut: another one begins in it, in line %d; it begins in line %d", found, number, began))
				object.Reset()
			}
			began = number
			found++
		case object.Len() == 0:
			continue
		}
		object.Write(line)
		object.WriteByte('\n')
		if object.Len() > Longest {
			errs = append(errs, fmt.Errorf("result %d, from line %d on, has more than %d bytes", found, began, Longest))
			object.Reset()
		}
		if string(line) == "}" {
			all = append(all, Object{bytes.Clone(object.Bytes()), began})
			object.Reset()
		}
	}
	if err := lines.Err(); err != nil {
		errs = append(errs, fmt.Errorf("after line %d: %w", number, err))
	}
	if object.Len() > 0 {
		errs = append(errs, fmt.Errorf("result %d is cut: it has no end; it begins in line %d, and line %d is the last", found, began, number))
	}
	if found == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("there is no result in it: want JSON as --json prints it, which begins with a line of {"))
	}
	return all, errors.Join(errs...)
}
