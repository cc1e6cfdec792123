package server

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// process is a folder of procfs.
type process struct {
	root, dir string
}

type stat struct {
	comm       string
	parent     string
	startTicks uint64
}

// stat reads /proc/PID/stat, see proc(5).
func (p process) stat() (stat, error) {
	text, err := os.ReadFile(filepath.Join(p.dir, "stat"))
	if err != nil {
		return stat{}, ended(err)
	}
	// The name is in parentheses and may hold any byte, so look for the last one.
	open, closing := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 0 || closing < open {
		return stat{}, fmt.Errorf("%s/stat has no name in parentheses", p.dir)
	}
	fields := strings.Fields(string(text[closing+1:]))
	const parent, start = 1, 19 // counted after the name
	if len(fields) <= start {
		return stat{}, fmt.Errorf("%s/stat has only %d fields", p.dir, len(fields)+2)
	}
	ticks, err := strconv.ParseUint(fields[start], 10, 64)
	if err != nil {
		return stat{}, fmt.Errorf("%s/stat: start time: %w", p.dir, err)
	}
	return stat{comm: string(text[open+1 : closing]), parent: fields[parent], startTicks: ticks}, nil
}

// isChildOfSame tells whether the parent is a PostgreSQL process too: then this is one of
// its children, which serve its clients.
func (p process) isChildOfSame(s stat) bool {
	parent := process{root: p.root, dir: filepath.Join(p.root, s.parent)}
	ps, err := parent.stat()
	return err == nil && programs[ps.comm] == PostgreSQL
}

func (p process) arguments() ([]string, error) {
	text, err := os.ReadFile(filepath.Join(p.dir, "cmdline"))
	if err != nil {
		return nil, ended(err)
	}
	text = bytes.TrimRight(text, "\x00")
	if len(text) == 0 {
		return nil, nil
	}
	return strings.Split(string(text), "\x00"), nil
}

// ended replaces the error of reading a process that has ended (ESRCH) by a plain one.
func ended(err error) error {
	if err != nil && strings.HasSuffix(err.Error(), "no such process") {
		return errEnded
	}
	return err
}
