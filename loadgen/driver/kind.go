package driver

import (
	"errors"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// Unreached reports whether an error of Init means that there was no connection to begin with.
func Unreached(err error) bool { return errors.As(err, new(*adapter.ConnectionError)) }
