package result

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/plumbline/plumbline/loadgen/internal/given"
	"github.com/plumbline/plumbline/loadgen/internal/logged"
)

// Read is ReadFrom of a text without a name.
func Read(from io.Reader) ([]Part, error) { return ReadFrom(from, "") }

// ReadFrom reads the results of generators that WriteJSON has written, one or several after another, with the lines of
// a log between. name is what the place that they are read from is called. What cannot be read is an error; the others
// are returned with it.
func ReadFrom(from io.Reader, name string) ([]Part, error) {
	text, err := given.ReadAll(from)
	if err != nil {
		return nil, err
	}
	in := name // of the text, where it has a name
	if in != "" {
		in += ": "
	}
	objects, err := logged.Objects(bytes.NewReader(text))
	var errs []error
	if err != nil {
		if len(objects) == 0 {
			err = fmt.Errorf("%w (it is %s)", err, given.What(text))
		}
		errs = append(errs, fmt.Errorf("%s%w", in, err))
	}
	var all []Part
	for i, o := range objects {
		place := name
		switch {
		case name == "":
			place = fmt.Sprintf("result %d", i+1)
		case len(objects) > 1:
			place = fmt.Sprintf("%s, result %d", name, i+1)
		}
		r := Part{from: place}
		if err := given.Decode(o.Text, &r, false, o.Line); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", place, err))
			continue
		}
		if r.Tool == "" || r.Profile == "" {
			errs = append(errs, given.NotA(place, o.Text, "the result of a generator"))
			continue
		}
		all = append(all, r)
	}
	return all, errors.Join(errs...)
}
