package paired

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Every mode is entered once in a block, and each slot has what was used in its mode.
func TestRun(t *testing.T) {
	entered, used := "", 0.0
	costs := map[string]float64{"a": 1, "b": 10, "c": 100}
	var modes []Mode
	for _, name := range []string{"a", "b", "c"} {
		modes = append(modes, Mode{name, func() error { entered += name; return nil }})
	}
	meter := func() (float64, error) {
		used += costs[entered[len(entered)-1:]]
		return used, nil
	}
	orders := map[string]bool{}
	for range 50 {
		entered = ""
		block, err := Run(context.Background(), modes, []Meter{meter}, Times{})
		if err != nil {
			t.Fatal(err)
		}
		orders[entered] = true
		for i, m := range modes {
			if got := block[i].Used[0]; got != costs[m.Name] {
				t.Errorf("order %s: mode %s used %g, want %g", entered, m.Name, got, costs[m.Name])
			}
		}
	}
	if len(orders) < 4 {
		t.Errorf("the orders were %v", orders)
	}
}

// Processes' CPU time is what they use.
func TestCPUOf(t *testing.T) {
	meter := CPUOf(os.Getpid())
	before, err := meter()
	if err != nil {
		t.Fatal(err)
	}
	var all float64
	for all < 0.05 {
		now, err := meter()
		if err != nil {
			t.Fatal(err)
		}
		all = now - before
	}
	if _, err := CPUOf(1 << 22)(); err == nil {
		t.Error("a process that is not there has CPU time")
	}
}

// Transactions are counted in the slots in which they ended, also those whose line comes in two parts.
func TestTransactions(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "log")
	write := func(name, text string) {
		f, err := os.OpenFile(prefix+name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	log := TransactionsOf(prefix)
	write(".7", "0 1 100 0 1000 10 0\n0 2 100 0 1000 20 0\n0 3 100 0 10")
	write(".7.1", "1 1 100 0 1000 15 0\n1 2 100 0 1000 500000 0\n")
	until, err := log.Read()
	if err != nil || until != time.UnixMicro(1000_000020) {
		t.Fatalf("complete until %s (%v)", until, err)
	}
	write(".7", "00 25 0\n")
	if until, err = log.Read(); err != nil || until != time.UnixMicro(1000_000025) {
		t.Fatalf("complete until %s (%v)", until, err)
	}
	at := func(us int64) time.Time { return time.UnixMicro(1000_000000 + us) }
	for _, c := range []struct{ from, to, want int64 }{{0, 10, 0}, {10, 20, 2}, {20, 26, 2}, {0, 1000000, 5}} {
		if got := log.Count(Slot{From: at(c.from), To: at(c.to)}); got != int(c.want) {
			t.Errorf("from %d to %d: %d, want %d", c.from, c.to, got, c.want)
		}
	}
	write(".7", "what is this\n")
	if _, err := log.Read(); err == nil {
		t.Error("a line that is none is taken")
	}
}
