package driver

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
)

// Sizes of the tables at scale 1, those of TPC-B but for the history.
const (
	accountsPerScale = 100_000
	tellersPerScale  = 10
	// historyRows bounds the history table: it is a ring that is written over and over, so that
	// a load of weeks does not fill the disk.
	historyRows = 10_000
	// rangeRows is how many accounts the range read of the mixed profile reads.
	rangeRows = 1000
)

// Profile is what one transaction does.
type Profile struct {
	// Help describes it in a sentence.
	Help string
	// without names the engines on which it needs none of loadgen's tables.
	without []string
	run     func(ctx context.Context, c conn, t task) error
}

// task is one transaction to do.
type task struct {
	random *rand.Rand
	scale  int
	worker int
}

// Profiles are the driver's profiles by name.
var Profiles = map[string]Profile{
	"tpcb-like":    {"Three updates, a read and a write to a history in one transaction, after TPC-B.", nil, tpcb},
	"kv-select":    {"One account read by its key.", nil, keyValue},
	"wal-commit":   {"A commit that writes the log and nothing else: one sync write.", []string{"postgres"}, walCommit},
	"seqscan":      {"A sum over all accounts: one sequential read of the table.", nil, scan},
	"read-mostly":  {"95 % kv-select, 5 % transfers between two accounts, all spread evenly over the working set.", nil, mostly(95)},
	"write-mostly": {"95 % transfers between two accounts, 5 % kv-select, all spread evenly over the working set.", nil, mostly(5)},
	"mixed":        {"75 % kv-select, 24 % tpcb-like, 1 % reads of a range of accounts.", nil, mixed},
	"simple-ping":  {"SELECT 1: the round trip without any storage.", Engines, ping},
}

// ProfileNames lists the profiles.
func ProfileNames() string {
	var names []string
	for name := range Profiles {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

func (t task) account() int { return 1 + t.random.IntN(t.scale*accountsPerScale) }

func tpcb(ctx context.Context, c conn, t task) error {
	account, teller := t.account(), 1+t.random.IntN(t.scale*tellersPerScale)
	branch, delta := 1+(teller-1)/tellersPerScale, t.random.IntN(10001)-5000
	if err := c.Exec(ctx, "begin"); err != nil {
		return err
	}
	if err := c.Exec(ctx, "update loadgen_accounts set balance = balance + ? where id = ?", delta, account); err != nil {
		return err
	}
	if _, err := c.Read(ctx, "select balance from loadgen_accounts where id = ?", account); err != nil {
		return err
	}
	if err := c.Exec(ctx, "update loadgen_tellers set balance = balance + ? where id = ?", delta, teller); err != nil {
		return err
	}
	if err := c.Exec(ctx, "update loadgen_branches set balance = balance + ? where id = ?", delta, branch); err != nil {
		return err
	}
	err := c.Exec(ctx, "update loadgen_history set account = ?, teller = ?, branch = ?, delta = ?, at = current_timestamp where id = ?",
		account, teller, branch, delta, 1+t.random.IntN(historyRows))
	if err != nil {
		return err
	}
	return c.Exec(ctx, "commit")
}

func keyValue(ctx context.Context, c conn, t task) error {
	_, err := c.Read(ctx, "select balance from loadgen_accounts where id = ?", t.account())
	return err
}

// walCommit writes, on PostgreSQL, a message to the write-ahead log that touches no table; MySQL
// has no such thing, so there it updates a row of its own.
func walCommit(ctx context.Context, c conn, t task) error {
	if c.Engine() == "postgres" {
		_, err := c.Read(ctx, "select 1 from pg_logical_emit_message(true, 'loadgen', 'x')")
		return err
	}
	return c.Exec(ctx, "update loadgen_history set delta = delta + 1 where id = ?", 1+t.worker%historyRows)
}

func scan(ctx context.Context, c conn, _ task) error {
	_, err := c.Read(ctx, "select count(balance) from loadgen_accounts")
	return err
}

func mixed(ctx context.Context, c conn, t task) error {
	switch n := t.random.IntN(100); {
	case n < 75:
		return keyValue(ctx, c, t)
	case n < 99:
		return tpcb(ctx, c, t)
	}
	from := t.account()
	_, err := c.Read(ctx, "select balance from loadgen_accounts where id between ? and ?", from, from+rangeRows-1)
	return err
}

// mostly reads an account in so many of 100 transactions, and writes two in the others.
func mostly(reads int) func(context.Context, conn, task) error {
	return func(ctx context.Context, c conn, t task) error {
		if t.random.IntN(100) < reads {
			return keyValue(ctx, c, t)
		}
		return transfer(ctx, c, t)
	}
}

// transfer moves something from one account to another, the lower key first: so two never wait
// for each other.
func transfer(ctx context.Context, c conn, t task) error {
	a, b, delta := t.account(), t.account(), 1+t.random.IntN(5000)
	if err := c.Exec(ctx, "begin"); err != nil {
		return err
	}
	if err := c.Exec(ctx, "update loadgen_accounts set balance = balance - ? where id = ?", delta, min(a, b)); err != nil {
		return err
	}
	if err := c.Exec(ctx, "update loadgen_accounts set balance = balance + ? where id = ?", delta, max(a, b)); err != nil {
		return err
	}
	return c.Exec(ctx, "commit")
}

func ping(ctx context.Context, c conn, _ task) error {
	_, err := c.Read(ctx, "select 1")
	return err
}
