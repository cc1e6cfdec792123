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

// prepare brings a target into the same state before each run, as far as it can: nothing left to
// write from the run before. It returns what was done, and what failed, for the row.
func (r *Runner) prepare(ctx context.Context, target Target) []string {
	var done []string
	note := func(what string, err error) {
		if err != nil {
			what += " failed: " + err.Error()
		}
		done = append(done, what)
	}
	if target.DSN != "" && target.Engine == "postgres" {
		note("checkpoint", checkpoint(ctx, target.DSN))
	}
	if target.Directory != "" {
		note("syncfs", syncfs(target.Directory))
	}
	if r.DropCaches {
		note("drop_caches", os.WriteFile(filepath.Join(r.ProcFS, "sys/vm/drop_caches"), []byte("3"), 0o200))
	}
	if r.Cooldown > 0 {
		select {
		case <-ctx.Done():
		case <-time.After(r.Cooldown):
			note("cool-down of "+r.Cooldown.String(), nil)
		}
	}
	return done
}

// checkpoint makes a server write what the run before has left. It needs the role pg_checkpoint.
func checkpoint(ctx context.Context, dsn string) error {
	db, err := adapter.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	_, err = db.Exec(ctx, "checkpoint")
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
