package sysbench

import (
	"context"
	"fmt"
	"time"
)

// commentTimeout is how long marks may take to change: MariaDB waits for whoever has a table open in a transaction,
// for a day by default.
const commentTimeout = 10 * time.Second

// noteChange writes to the marks on loadgen's tables that the test changes how many rows they have. They are then made
// afresh for another test. It is called before the first run.
func (t *Tool) noteChange(ctx context.Context) {
	if t.noted || !t.config.changes() {
		return
	}
	limited, cancel := context.WithTimeout(ctx, commentTimeout)
	defer cancel()
	err := t.withDatabase(limited, func(ctx context.Context, db database) error {
		there, err := t.config.Target.list(ctx, db)
		if err != nil {
			return fmt.Errorf("looking for sysbench's tables: %w", err)
		}
		for n := 1; n <= t.config.Tables; n++ {
			one := there[n]
			changed := t.config.Script
			switch one.changed {
			case changed, others:
				continue
			case "":
			default:
				changed = others
			}
			if !one.ours {
				continue
			}
			if err := t.config.Target.comment(ctx, db, n, mark(one.rows, changed)); err != nil {
				return fmt.Errorf("noting on %s%d that %s changes it: %w", prefix, n, t.config.Script, err)
			}
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		t.log.Warn("the tables that this test changes are not marked so, and another test would take them as they are: drop them before it", "err", err)
	}
	t.noted = err == nil
}
