// Package probe measures what a folder's storage does when a database's log is written to it: the one writer writes and
// syncs, waits, and does it again, and readers read what no cache has.
package probe

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/loadgen/predict"
)

// Config configures a load.
type Config struct {
	// Directory is on the storage that is measured. Files in there are made and removed.
	Directory string
	// Size is that of a write and of a read, in bytes.
	Size int
	// Pauses are mean pauses between an operation's end and the next, exponential: each has windows of its own, in
	// turn.
	Pauses []time.Duration
	// Readers is how many read at the same time; 0 reads nothing.
	Readers int
	// FileSize is that of the file that is read, in bytes; the one that is written to is a segment of a log.
	FileSize int64
	// Window is how long each window is, and Windows how many there are of each pause.
	Window  time.Duration
	Windows int
}

// segment is the size of the file that is written to, over and over: that of PostgreSQL's.
const segment = 16 << 20

// Check returns what is wrong with a configuration.
func (c Config) Check() error {
	switch {
	case c.Size < 512 || c.Size > 1<<20 || c.Size%512 != 0:
		return fmt.Errorf("a size of %d bytes; want 512 to 1 MiB, in steps of 512", c.Size)
	case len(c.Pauses) == 0 || c.Windows < 1 || c.Window <= 0:
		return errors.New("pauses, windows and their length must be above 0")
	case c.Readers < 0 || c.Readers > 256:
		return fmt.Errorf("%d readers; want 0 to 256", c.Readers)
	case c.Readers > 0 && c.FileSize < 64*int64(c.Size):
		return fmt.Errorf("a file of %d bytes is too small to read from", c.FileSize)
	}
	for _, p := range c.Pauses {
		if p < 0 {
			return fmt.Errorf("a pause of %v", p)
		}
	}
	return nil
}

// Measure makes the load, and returns its windows: calls on files, by sync, write and read.
func Measure(ctx context.Context, c Config) ([]predict.Load, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp(c.Directory, ".loadgen-probe-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	log, err := create(filepath.Join(dir, "log"), segment, c.Size)
	if err != nil {
		return nil, err
	}
	defer unix.Close(log)
	data := -1
	if c.Readers > 0 {
		if data, err = create(filepath.Join(dir, "data"), c.FileSize, c.Size); err != nil {
			return nil, err
		}
		defer unix.Close(data)
		// Neither what was written nor what lies beside it is to be in the page cache.
		if err := errors.Join(unix.Fadvise(data, 0, 0, unix.FADV_DONTNEED), unix.Fadvise(data, 0, 0, unix.FADV_RANDOM)); err != nil {
			return nil, fmt.Errorf("%s: emptying the page cache: %w", dir, err)
		}
	}
	var found []predict.Load
	for range c.Windows {
		for _, pause := range c.Pauses {
			l, err := c.window(ctx, log, data, pause)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", dir, err)
			}
			found = append(found, l)
		}
	}
	return found, nil
}

// create makes a file of a size that is all on storage. It is opened as databases do, past Go's own poller: a file
// system in this machine's user space may have to serve its polls.
func create(path string, size int64, block int) (int, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	text := make([]byte, max(block, 1<<18))
	for i := range text {
		text[i] = byte(i*7 + i>>8)
	}
	for at := int64(0); at < size && err == nil; at += int64(len(text)) {
		err = writeAll(fd, text[:min(int64(len(text)), size-at)], at)
	}
	if err == nil {
		err = unix.Fdatasync(fd)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("%s: %w", path, err)
	}
	return fd, nil
}

func writeAll(fd int, text []byte, at int64) error {
	for len(text) > 0 {
		n, err := unix.Pwrite(fd, text, at)
		if err != nil && err != unix.EINTR {
			return err
		}
		text, at = text[max(n, 0):], at+int64(max(n, 0))
	}
	return nil
}

// window is one window.
func (c Config) window(ctx context.Context, log, data int, pause time.Duration) (predict.Load, error) {
	began := time.Now()
	ctx, cancel := context.WithDeadline(ctx, began.Add(c.Window))
	defer cancel()
	var writes, syncs []float64
	reads := make([][]float64, c.Readers)
	failed := make([]error, c.Readers+1)
	var all sync.WaitGroup
	all.Go(func() {
		text, at := make([]byte, c.Size), int64(0)
		failed[c.Readers] = repeat(ctx, pause, func() error {
			t0, err := now()
			if err == nil {
				err = writeAll(log, text, at)
			}
			if err != nil {
				return err
			}
			t1, err := now()
			if err == nil {
				err = unix.Fdatasync(log)
			}
			if err != nil {
				return err
			}
			t2, err := now()
			writes, syncs = append(writes, t1-t0), append(syncs, t2-t1)
			if err != nil {
				return err
			}
			at = (at + int64(c.Size)) % (segment - int64(c.Size) + 1) / 512 * 512
			return nil
		})
	})
	for i := range c.Readers {
		all.Go(func() {
			text, blocks := make([]byte, c.Size), c.FileSize/int64(c.Size)
			failed[i] = repeat(ctx, pause, func() error {
				at := rand.Int64N(blocks) * int64(c.Size)
				t0, err := now()
				if err != nil {
					return err
				}
				if _, err := unix.Pread(data, text, at); err != nil && err != unix.EINTR {
					return err
				}
				t1, err := now()
				if err != nil {
					return err
				}
				reads[i] = append(reads[i], t1-t0)
				// The next reader of this block is to find it on storage, too.
				return unix.Fadvise(data, at, int64(c.Size), unix.FADV_DONTNEED)
			})
		})
	}
	all.Wait()
	l := predict.Load{Seconds: time.Since(began).Seconds(), Operations: map[string]predict.Operation{}}
	var read []float64
	for _, r := range reads {
		read = append(read, r...)
	}
	for name, times := range map[string][]float64{"sync": syncs, "write": writes, "read": read} {
		if len(times) > 0 {
			l.Operations[name] = predict.Operation{Times: predict.FromTimes(times), Bytes: float64(c.Size)}
		}
	}
	err := errors.Join(failed...)
	if err == nil && len(syncs) == 0 {
		err = fmt.Errorf("no sync ended within %v: give longer windows", c.Window)
	}
	return l, err
}

// now is a clock in seconds that stops while the calling thread is on a CPU: what a call takes by it is what it waits,
// as the phases of statements have it.
func now() (float64, error) {
	var cpu unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &cpu); err != nil {
		return 0, fmt.Errorf("the thread's CPU time: %w", err)
	}
	return time.Since(epoch).Seconds() - time.Duration(cpu.Nano()).Seconds(), nil
}

var epoch = time.Now()

// repeat does something with pauses until the time is over, on a thread of its own.
func repeat(ctx context.Context, mean time.Duration, do func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for ctx.Err() == nil {
		if err := do(); err != nil {
			return err
		}
		if mean == 0 {
			continue
		}
		wait := time.NewTimer(time.Duration(rand.ExpFloat64() * float64(mean)))
		select {
		case <-ctx.Done():
			wait.Stop()
		case <-wait.C:
		}
	}
	return nil
}
