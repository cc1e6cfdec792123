package collector

import (
	"context"
	"log/slog"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// Every calls f at an interval, and whenever wake receives, if it is not nil, until ctx ends. What f reads belongs to
// others: a panic in it ends one call, and is logged.
func Every(ctx context.Context, log *slog.Logger, interval time.Duration, wake <-chan struct{}, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-wake:
		}
		safely(log, f)
	}
}

// safely calls f; a panic in it is logged.
func safely(log *slog.Logger, f func()) {
	err := exporterkit.Recovered(func() error {
		f()
		return nil
	})
	if err != nil {
		log.Error("please report this", "err", err)
	}
}
