package collector

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// CLI calls GlusterFS's own command line program: glusterd speaks no documented protocol.
type CLI struct {
	// Command is the program.
	Command string
	// Options are put before each command.
	Options []string
	// Timeout bounds each call.
	Timeout time.Duration
}

// call runs one command and returns what it printed.
func (c CLI) call(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	// Its own log would grow with every poll.
	options := append([]string{"--mode=script", "--log-file=/dev/null"}, c.Options...)
	cmd := exec.CommandContext(ctx, c.Command, append(options, args...)...)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("no answer: %w", ctx.Err())
	case errors.Is(err, exec.ErrNotFound):
		return nil, err
	case err != nil && bytes.HasPrefix(out.Bytes(), []byte("<?xml")):
		return out.Bytes(), nil // the answer itself says why
	case err != nil:
		return nil, fmt.Errorf("%w: %s", err, firstLine(complaint.String()+out.String()))
	}
	return out.Bytes(), nil
}

// ask runs one command with --xml and decodes its answer.
func (c CLI) ask(ctx context.Context, into any, args ...string) error {
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

func firstLine(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	return line
}
