package collector

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

const (
	// maxAnswer bounds what is read of a command's answer, in bytes; a brick's profile has some 10 KB.
	maxAnswer = 16 << 20
	// maxComplaint bounds what is read of its errors.
	maxComplaint = 64 << 10
	// waitDelay is how long a killed program's output may stay open.
	waitDelay = time.Second
)

// CLI calls GlusterFS's own command line program: glusterd has no documented protocol.
type CLI struct {
	// Command is the program.
	Command string
	// Options are put before each command.
	Options []string
	// Timeout bounds each call.
	Timeout time.Duration
	// Pause is about how long a command waits that found a lock of glusterd's held, before it is tried once more; 0 for
	// no second try.
	Pause time.Duration
}

// errLocked is returned if another command, of an administrator or of another exporter, holds a lock of glusterd's.
var errLocked = errors.New("glusterd is busy with another command")

// lockTexts are glusterd's messages for that.
var lockTexts = []string{"Another transaction is in progress", "Another transaction could be in progress", "Locking failed"}

// locked reports whether a text has one of lockTexts.
func locked(text string) bool {
	return slices.ContainsFunc(lockTexts, func(t string) bool { return strings.Contains(text, t) })
}

// call runs one command, a second time if it found a lock held, and returns what it printed.
func (c CLI) call(ctx context.Context, args ...string) ([]byte, error) {
	out, err := c.run(ctx, args...)
	if c.Pause <= 0 || !errors.Is(err, errLocked) && (len(out) > maxComplaint || !locked(string(out))) {
		return out, err
	}
	select {
	case <-ctx.Done():
		return out, err
	case <-time.After(c.Pause/2 + rand.N(c.Pause)):
	}
	return c.run(ctx, args...)
}

// run runs one command once.
func (c CLI) run(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	// Its own log would grow with every poll.
	options := append([]string{"--mode=script", "--log-file=/dev/null"}, c.Options...)
	cmd := exec.CommandContext(ctx, c.Command, append(options, args...)...)
	out, complaint := bounded{limit: maxAnswer, full: cancel}, bounded{limit: maxComplaint}
	cmd.Stdout, cmd.Stderr = &out, &complaint
	// The program and all that it has started end together, and no pipe that one of them has taken
	// along holds us up.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = waitDelay
	err := cmd.Run()
	switch {
	case out.over:
		return nil, fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer: %w", ctx.Err())
	case errors.Is(err, exec.ErrNotFound):
		return nil, err
	case err != nil && bytes.HasPrefix(out.kept.Bytes(), []byte("<?xml")):
		return out.kept.Bytes(), nil // the answer itself has the reason
	case err != nil:
		text := complaint.kept.String() + out.kept.String()
		if locked(text) {
			return nil, fmt.Errorf("%w: %w: %s", errLocked, err, firstLine(text))
		}
		return nil, fmt.Errorf("%w: %s", err, firstLine(text))
	}
	return out.kept.Bytes(), nil
}

// query runs one command with --xml and decodes its answer.
func (c CLI) query(ctx context.Context, into any, args ...string) error {
	out, err := c.call(ctx, append([]string{"--xml"}, args...)...)
	if err != nil {
		return err
	}
	var result struct {
		Code int    `xml:"opRet"`
		Text string `xml:"opErrstr"`
	}
	if err := xml.Unmarshal(out, &result); err != nil {
		return fmt.Errorf("answer is no XML: %w", err)
	}
	if result.Code != 0 {
		return fmt.Errorf("refused: %s", firstLine(result.Text))
	}
	return xml.Unmarshal(out, into)
}

// firstLine is what the log gets of a text.
func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return label.Value(line)
}

// bounded keeps the beginning of what is written to it. The buffer is no embedded field: its
// ReadFrom would be taken instead of Write.
type bounded struct {
	kept  bytes.Buffer
	limit int
	over  bool
	full  func() // called when there is more; nil: the rest is left out
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.limit - b.kept.Len()
	if len(p) > room {
		b.over = true
		if b.full != nil {
			b.full()
		}
		b.kept.Write(p[:room])
		return len(p), nil
	}
	return b.kept.Write(p)
}
