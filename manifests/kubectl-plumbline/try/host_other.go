//go:build !linux

package try

import (
	"context"
	"errors"
)

// Host returns an error: the programs need Linux.
func Host(context.Context, string, func(context.Context, []Exporter) error) error {
	return errors.New("measuring this machine needs Linux; kubectl plumbline try TARGET measures a cluster's node")
}
