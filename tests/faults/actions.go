package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// killSession kills one session of a class's load, which PostgreSQL takes for a crash.
func (l *lab) killSession(class string) error {
	c, err := l.connect(l.ctx, class)
	if err != nil {
		return err
	}
	defer c.Close(l.ctx)
	var pid int
	if err := c.QueryRow(l.ctx, "select pid from pg_stat_activity where application_name = 'pgbench' limit 1").Scan(&pid); err != nil {
		return fmt.Errorf("a session of pgbench: %w", err)
	}
	return syscall.Kill(pid, syscall.SIGKILL)
}

// filler is the file that takes a volume's room.
func (l *lab) filler(class string) (string, error) {
	return l.inside(filepath.Join(l.class(class).Mount(), "filler"))
}

// fill takes all the room of a class's volume, that set aside for root included.
func (l *lab) fill(class string) error {
	path, err := l.filler(class)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var size int64
	// In ever smaller pieces: what a piece needs for itself is not known.
	for piece := int64(1 << 30); piece >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, size, piece); {
		case err == nil:
			size += piece
		case errors.Is(err, unix.ENOSPC):
			piece /= 2
		default:
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	// The server has room left in its own files for a while: segments of its log that are there
	// to be used again. The end of each makes it take the next.
	c, err := l.connect(l.ctx, class)
	if err != nil {
		return err
	}
	defer c.Close(l.ctx)
	const segments = 64 // of 16 MB: as many as max_wal_size and more
	for range segments {
		if _, err := c.Exec(l.ctx, "select pg_logical_emit_message(false, '', 'x'), pg_switch_wal()"); err != nil {
			return nil // there it is
		}
	}
	return errors.New("the server goes on to find room for its log")
}

// empty gives the room back. The supervisor starts the server, if it ended for want of it.
func (l *lab) empty(class string) error {
	path, err := l.filler(class)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// churn opens connections, many at a time, each for one statement, beside the ledger.
func (l *lab) churn(class string, atATime int, lasts time.Duration) error {
	ctx, cancel := context.WithTimeout(l.ctx, lasts)
	defer cancel()
	var wait sync.WaitGroup
	problems := make(chan error, atATime)
	for range atATime {
		wait.Go(func() {
			for ctx.Err() == nil {
				c, err := l.connect(l.ctx, class)
				if err == nil {
					_, err = c.Exec(l.ctx, "select 1")
					_ = c.Close(l.ctx)
				}
				if err != nil {
					problems <- err
					return
				}
			}
		})
	}
	wait.Wait()
	close(problems)
	return <-problems
}

// stepClock sets the machine's wall clock.
func stepClock(by time.Duration) error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		return fmt.Errorf("reading the clock: %w", err)
	}
	then := unix.NsecToTimespec(now.Nano() + by.Nanoseconds())
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &then); err != nil {
		return fmt.Errorf("setting the clock: %w", err)
	}
	return nil
}

// longest returns the longest times of the last minutes, by what measures them.
func (l *lab) longest() string {
	var reported []string
	for what, metric := range map[string]string{"statement by the agent": "plumbline_query_duration_seconds", "response by the loads": "loadgen_response_seconds",
		"replica's round trip": "plumbline_replica_request_duration_seconds"} {
		v, err := l.prometheus.Number(l.ctx, fmt.Sprintf("histogram_quantile(1, sum(increase(%s[3m])))", metric))
		if err != nil {
			reported = append(reported, fmt.Sprintf("%s unknown: %v", what, err))
			continue
		}
		reported = append(reported, fmt.Sprintf("%s at most %.3f s", what, v))
	}
	slices.Sort(reported)
	return "longest " + strings.Join(reported, ", longest ")
}

// observers are the replaceable exporters of ours, by the lab's names.
func (l *lab) observers() []string {
	urls := []string{l.config.URL("agent") + "/metrics", l.config.URL("longhorn_exporter") + "/metrics"}
	for _, c := range l.config.Classes {
		urls = append(urls, l.metrics(c.Name, "pgbench"), l.metrics(c.Name, "canary"))
	}
	return urls
}
