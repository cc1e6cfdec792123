package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/tests/rig"
)

// kind is a load: so many sessions that each wait for their answer.
type kind struct {
	name string
	// command is the agent's name of the statement that waits for storage.
	command string
	clients int
	pause   time.Duration
	think   predict.Think
	reads   bool
	// statements are those of one turn; the last one is of that command.
	statements func(r *rand.Rand, client int) []string
}

func inserts(*rand.Rand, int) []string { return []string{"insert into target values (1)"} }

// transfers are transactions on rows that no other session changes.
func transfers(r *rand.Rand, client int) []string {
	row := func() int { return client*(accounts/8) + r.IntN(accounts/8) }
	return []string{"begin", fmt.Sprintf("update accounts set balance = balance + 1 where i = %d", row()),
		fmt.Sprintf("select balance from accounts where i = %d", row()),
		fmt.Sprintf("update accounts set balance = balance - 1 where i = %d", row()), "commit"}
}

// selects read a page each that the server does not have.
func selects(r *rand.Rand, _ int) []string {
	return []string{fmt.Sprintf("select i from pages where ctid = '(%d,1)'", r.IntN(pages))}
}

var kinds = []kind{
	{name: "one session", command: "insert", clients: 1, pause: 5 * time.Millisecond, think: predict.Exponential, statements: inserts},
	{name: "four sessions without a pause", command: "insert", clients: 4, think: predict.Constant, statements: inserts},
	{name: "eight sessions", command: "insert", clients: 8, pause: 30 * time.Millisecond, think: predict.Exponential, statements: inserts},
	{name: "transactions of four sessions", command: "commit", clients: 4, pause: 10 * time.Millisecond, think: predict.Exponential, statements: transfers},
	{name: "reads of two sessions", command: "select", clients: 2, pause: 3 * time.Millisecond, think: predict.Exponential, reads: true, statements: selects},
}

// client is one connection.
type client struct{ *pgx.Conn }

func connect(t *rig.Scope, url string) client {
	c, err := pgx.Connect(context.Background(), url)
	t.Check(err)
	return client{c}
}

func (c client) close() { _ = c.Close(context.Background()) }

// do executes a statement in the simple protocol: one round trip.
func (c client) do(text string) error {
	if _, err := c.PgConn().Exec(context.Background(), text).ReadAll(); err != nil {
		return fmt.Errorf("%s: %w", text, err)
	}
	return nil
}

// made is what a load made: its turns, and the seconds from each answer of the statement that waits for storage to the
// next such statement of its session, of which there are fewer.
type made struct {
	turns    int
	thought  float64
	thoughts int
}

// load makes a load for a while.
func (k kind) load(t *rig.Scope, clients []client, seed uint64, d time.Duration) (all made) {
	end := time.Now().Add(d)
	parts := make([]made, k.clients)
	failed := make([]error, k.clients)
	var running sync.WaitGroup
	for i, c := range clients[:k.clients] {
		running.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			var answered time.Time
			for time.Now().Before(end) {
				statements := k.statements(r, i)
				for j, text := range statements {
					if j == len(statements)-1 && !answered.IsZero() {
						parts[i].thought += time.Since(answered).Seconds()
						parts[i].thoughts++
					}
					if failed[i] = c.do(text); failed[i] != nil {
						return
					}
				}
				answered = time.Now()
				parts[i].turns++
				if k.pause > 0 {
					// In the kernel: timers of Go's that are due within a millisecond end together, and sessions would
					// come in groups.
					pause := unix.NsecToTimespec(int64(r.ExpFloat64() * float64(k.pause)))
					_ = unix.Nanosleep(&pause, nil) // a signal may end it early: one pause of many
				}
			}
		})
	}
	running.Wait()
	for i, err := range failed {
		t.Check(err)
		all.turns += parts[i].turns
		all.thought += parts[i].thought
		all.thoughts += parts[i].thoughts
	}
	return all
}
