package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
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

// empty gives the room back, and starts the server if it ended for want of it.
func (l *lab) empty(class string) error {
	path, err := l.filler(class)
	if err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	name := class + "-postgresql"
	if p, err := l.process(name); err != nil || p.Running {
		return err
	}
	return l.start(name)
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

// longest tells the longest times of the last minutes by those who measure them.
func (l *lab) longest() string {
	var told []string
	for what, metric := range map[string]string{"statement by the agent": "plumbline_query_duration_seconds", "response by the loads": "loadgen_response_seconds",
		"replica's round trip": "plumbline_replica_request_duration_seconds"} {
		v, err := l.prometheus.Number(l.ctx, fmt.Sprintf("histogram_quantile(1, sum(increase(%s[3m])))", metric))
		if err != nil {
			told = append(told, fmt.Sprintf("%s unknown: %v", what, err))
			continue
		}
		told = append(told, fmt.Sprintf("%s at most %.3f s", what, v))
	}
	slices.Sort(told)
	return "longest " + strings.Join(told, ", longest ")
}

// observers are the replaceable exporters of ours, by the lab's names.
func (l *lab) observers() []string {
	urls := []string{l.config.URL("agent") + "/metrics", l.config.URL("longhorn_exporter") + "/metrics"}
	for _, c := range l.config.Classes {
		urls = append(urls, l.metrics(c.Name, "pgbench"), l.metrics(c.Name, "canary"))
	}
	return urls
}

func answers(address string) error {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	return c.Close()
}

// reattach starts a Longhorn volume again whose engine or block device ended, and all that lies on
// it. The load, the canary and postgres_exporter have nothing open there: they wait for their
// database by themselves, as they would on a cluster.
func (l *lab) reattach() error {
	const class = "longhorn-r3-"
	for _, name := range []string{"readprobe", "postgresql", "volume", "bridge", "engine"} {
		if err := l.finish(class+name, name == "volume" || name == "bridge"); err != nil {
			return err
		}
	}
	// A replica that had an engine takes a new one only after its own start, as Longhorn does it.
	e, err := l.engine()
	if err != nil {
		return err
	}
	for n, r := range e.Replicas {
		name := fmt.Sprintf("%sreplica-%d", class, n+1)
		if err := l.finish(name, false); err != nil {
			return err
		}
		if err := l.bring(name, func() error { return answers(r.Address) }); err != nil {
			return err
		}
	}
	socket, err := l.inside("/run/longhorn-" + l.class("longhorn-r3").Volume() + ".sock")
	if err != nil {
		return err
	}
	device, err := l.inside(filepath.Join(l.class("longhorn-r3").Dir(), "bridge", "volume"))
	if err != nil {
		return err
	}
	mounted, err := l.inside(filepath.Join(l.class("longhorn-r3").DataDirectory(), "PG_VERSION"))
	if err != nil {
		return err
	}
	there := func(path string) func() error {
		return func() error { _, err := os.Stat(path); return err }
	}
	// Each is started once the one before works: what the supervisor takes for its state may be
	// that of its former life.
	for _, s := range []struct {
		name  string
		works func() error
	}{
		{"engine", func() error { return errors.Join(answers(e.Engine), there(socket)()) }},
		{"bridge", there(device)},
		{"volume", there(mounted)},
		{"postgresql", func() error { return l.serves("longhorn-r3") }},
		{"readprobe", func() error { return nil }},
	} {
		if err := l.bring(class+s.name, s.works); err != nil {
			return err
		}
	}
	return nil
}

// finish ends a process if it still runs: in order, so that it takes its mount away, or at once.
func (l *lab) finish(name string, inOrder bool) error {
	p, err := l.process(name)
	if err != nil || !p.Running {
		return err
	}
	if inOrder {
		err = l.call(http.MethodPatch, "/process/stop/"+name, nil)
	} else {
		err = l.signal(name, syscall.SIGKILL)
	}
	if err != nil {
		return err
	}
	return l.awaitEnd(name)
}

// awaitEnd returns once a process does not run any more.
func (l *lab) awaitEnd(name string) error {
	return testkit.Await(l.o.deadline, func() error {
		p, err := l.process(name)
		if err == nil && p.Running {
			err = fmt.Errorf("%s has not ended", name)
		}
		return err
	})
}

// bring starts a process that has ended and returns once it works. The supervisor skips a process
// while what it depends on is not ready by its own probe, and takes a second start of one that waits
// for another process: so a start is asked for again only once the one before has failed.
func (l *lab) bring(name string, works func() error) error {
	return testkit.Await(l.o.deadline, func() error {
		p, err := l.process(name)
		switch {
		case err != nil:
			return err
		case p.ended():
			return errors.Join(fmt.Errorf("%s has ended", name), l.call(http.MethodPost, "/process/start/"+name, nil))
		case !p.Running:
			return fmt.Errorf("%s does not run yet, it is %s", name, p.Status)
		}
		if err := works(); err != nil {
			return fmt.Errorf("%s does not work: %w", name, err)
		}
		return nil
	})
}

// serves says whether a class's database answers.
func (l *lab) serves(class string) error {
	c, err := l.connect(l.ctx, class)
	if err != nil {
		return err
	}
	return c.Close(l.ctx)
}
