package matrix

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// Orders are the orders of targets within a round that there are.
var Orders = []string{"file", "abba", "random"}

func (r *Runner) order() string {
	if r.Order == "" {
		return "file"
	}
	return r.Order
}

// inOrder is the targets' order in a round of a step. In abba a drift of the machine that is even in
// time meets all alike after two rounds.
func (r *Runner) inOrder(targets []Target, step string, round int) []Target {
	targets = slices.Clone(targets)
	switch r.order() {
	case "abba":
		if round%2 == 0 {
			slices.Reverse(targets)
		}
	case "random":
		h := fnv.New64a()
		fmt.Fprintf(h, "%s/%d", step, round)
		random := rand.New(rand.NewPCG(r.Seed, h.Sum64()))
		random.Shuffle(len(targets), func(i, j int) { targets[i], targets[j] = targets[j], targets[i] })
	}
	return targets
}

// note records in a row what was done before the run, or what failed of it, and returns err.
func (row *Row) note(what string, err error) error {
	if err != nil {
		what += " failed: " + err.Error()
	}
	row.Prepared = append(row.Prepared, what)
	return err
}

// prepare brings a target, whose tables or files are there, into the same state before each run, as far as it can: no
// dead rows and nothing left to write from the run before. The row records what was done; what fails does not keep the
// run from being made.
func (r *Runner) prepare(ctx context.Context, target Target, row *Row) {
	if target.DSN != "" && target.Engine == "postgres" {
		if row.step.FIO == nil && row.step.Init == nil {
			_ = row.note("vacuum", execute(ctx, target.DSN, "vacuum (analyze)"))
		}
		// It needs the role pg_checkpoint.
		_ = row.note("checkpoint", execute(ctx, target.DSN, "checkpoint"))
	}
	if target.Directory != "" {
		_ = row.note("syncfs", syncfs(target.Directory))
	}
	if r.DropCaches {
		_ = row.note("drop_caches", os.WriteFile(filepath.Join(r.ProcFS, "sys/vm/drop_caches"), []byte("3"), 0o200))
	}
	if r.Cooldown > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(r.Cooldown):
			_ = row.note("cool-down of "+r.Cooldown.String(), nil)
		}
	}
}

// execute sends a server one command.
func execute(ctx context.Context, dsn, command string) error {
	db, err := adapter.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	_, err = db.Exec(ctx, command)
	return err
}

// syncfs waits until the file system that holds a directory has written everything.
func syncfs(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
