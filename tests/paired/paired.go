// Package paired compares modes of one running system: each has a short slot in every block, in random order, so
// that whatever moves the machine moves all modes of a block alike.
package paired

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/plumbline/plumbline/tests/pause"
)

// Mode is a way for the system to be.
type Mode struct {
	Name string
	// Enter makes it so. It is called before each of the mode's slots.
	Enter func() error
}

// Meter is something used, as a sum that grows.
type Meter func() (float64, error)

// Slot is one mode's time in a block.
type Slot struct {
	From, To time.Time
	// Used is what each meter grew by.
	Used []float64
}

// Block has a slot for each mode, in the modes' order.
type Block []Slot

// Times are how long the system is left alone in a new mode, and how long it is measured then.
type Times struct{ Settle, Measure time.Duration }

// Run goes once through all modes in random order.
func Run(ctx context.Context, modes []Mode, meters []Meter, times Times) (Block, error) {
	block := make(Block, len(modes))
	for _, i := range rand.Perm(len(modes)) {
		if err := modes[i].Enter(); err != nil {
			return nil, fmt.Errorf("%s: %w", modes[i].Name, err)
		}
		if err := pause.For(ctx, times.Settle); err != nil {
			return nil, err
		}
		from, before, err := read(meters)
		if err != nil {
			return nil, err
		}
		if err := pause.For(ctx, times.Measure); err != nil {
			return nil, err
		}
		to, after, err := read(meters)
		if err != nil {
			return nil, err
		}
		used := make([]float64, len(meters))
		for m := range meters {
			used[m] = after[m] - before[m]
		}
		block[i] = Slot{from, to, used}
	}
	return block, nil
}

func read(meters []Meter) (at time.Time, sums []float64, err error) {
	at = time.Now()
	for _, m := range meters {
		sum, err := m()
		if err != nil {
			return at, nil, err
		}
		sums = append(sums, sum)
	}
	return at, sums, nil
}
