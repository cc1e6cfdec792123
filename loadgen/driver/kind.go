package driver

import (
	"errors"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// Unreached says whether an error of Init is that there was no connection to begin with.
func Unreached(err error) bool { return errors.As(err, new(*adapter.ConnectionError)) }
