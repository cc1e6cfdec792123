package driver

import (
	"context"
	"errors"

	"github.com/plumbline/plumbline/loadgen/metrics"
)

// Kind sorts an error of Init as those of transactions are.
func Kind(ctx context.Context, err error) metrics.ErrorKind { return errorKind(ctx, err) }

// Unreached says whether an error of Init is that there was no connection to begin with.
func Unreached(err error) bool { return errors.As(err, new(*connectionError)) }
