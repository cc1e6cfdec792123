package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/plumbline/plumbline/tests/results/rows"
)

const section = "Faults"

// fault is something that goes wrong, and how that is to be seen.
type fault struct {
	name, expected string
	// class is the one whose transactions are counted.
	class string
	// job is the scrape job whose failed scrapes are counted; empty for none.
	job string
	// again is the process that the supervisor has to start again; empty for none.
	again string
	// begin makes the fault, end repairs what does not repair itself.
	begin, end func(l *lab) error
	// seen are PromQL conditions of the fault, well those after its end.
	seen, well []string
	// more, if not nil, returns more to report.
	more func(l *lab) string
}

// try makes a fault and its end and adds a row.
func (l *lab) try(f fault, out *rows.File) error {
	fmt.Fprintf(os.Stderr, "%s\n", f.name)
	began := time.Now()
	ledger, err := l.openLedger(f.class)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	before := ledger.count()
	ledger.begin()
	restarts := 0
	if f.again != "" {
		if restarts, err = l.restarts(f.again); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	err = f.begin(l)
	var again, seen, well time.Duration
	if err == nil && f.again != "" {
		again, err = l.startedAgain(f.again, restarts)
	}
	if err == nil {
		seen, err = l.await(f.seen)
		if err != nil {
			err = fmt.Errorf("not seen: %w", err)
		}
	}
	// Repaired in any case: the next fault needs a whole lab.
	repair := time.Now()
	if f.end != nil {
		if e := f.end(l); e != nil {
			err = errors.Join(err, fmt.Errorf("repair: %w", e))
		}
	}
	repaired := time.Since(repair)
	well, e := l.await(append(f.well, `count(up == 1) == count(up)`))
	if e != nil {
		err = errors.Join(err, fmt.Errorf("not well again: %w", e))
	}
	// The database takes transactions again: these are after the fault in any case.
	works, e := ledger.goesOn(20, l.o.deadline)
	well += works
	if e != nil {
		err = errors.Join(err, e)
	}
	lasted := time.Since(began)
	done, lost := ledger.count().since(before)
	if f.job != "" {
		lost += "; " + l.scrapes(f.job, lasted)
	}
	text := fmt.Sprintf("seen after %.1f s; well %.1f s after the repair, which took %.1f s", seen.Seconds(), well.Seconds(), repaired.Seconds())
	if f.end == nil {
		text = fmt.Sprintf("seen after %.1f s; well by itself after another %.1f s", seen.Seconds(), well.Seconds())
	}
	if f.again != "" {
		text = fmt.Sprintf("%s started again by the supervisor and ready after %.1f s; ", f.again, again.Seconds()) + text
	}
	if f.more != nil {
		text += "; " + f.more(l)
	}
	if err != nil {
		text = "NOT AS EXPECTED: " + strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	out.Add(section, f.name, "expected", f.expected, "seen", text, "load's transactions meanwhile", done, "lost", lost)
	fmt.Fprintf(os.Stderr, "  %s; %s transactions of the load; lost: %s\n", text, done, lost)
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

// scrapes returns how many scrapes of a job failed or were not made since then.
func (l *lab) scrapes(job string, since time.Duration) string {
	const interval = 2 * time.Second
	window := since.Round(time.Second)
	v, err := l.prometheus.Vector(l.ctx, fmt.Sprintf(`sum by (job) (sum_over_time(up{job=%q}[%ds])) / count by (job) (count_over_time(up{job=%q}[%ds]))`, job, int(window.Seconds()), job, int(window.Seconds())))
	if err != nil || len(v) != 1 {
		return fmt.Sprintf("scrapes of %s unknown: %v", job, err)
	}
	due := window.Seconds() / interval.Seconds()
	return fmt.Sprintf("%.0f of %.0f scrapes of a target", max(0, due-float64(v[0].Value)), due)
}
