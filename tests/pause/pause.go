// Package pause waits, for the proofs' commands: over a time to be measured, or between two checks of what is awaited.
package pause

import (
	"context"
	"time"
)

// For waits for d, and returns the context's error if that ends before.
func For(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
