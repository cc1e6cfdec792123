package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stuck prints what a command that did not end was doing: a Go program's goroutines, and what each thread of the
// machine waits for in the kernel. It prints on the console, as what hangs may be the files.
func stuck(c *exec.Cmd, ended <-chan error) {
	fmt.Println("init: the command is not done; its goroutines are dumped")
	_ = c.Process.Signal(unix.SIGQUIT)
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
		fmt.Println("init: the command does not even end")
	}
	threads, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*")
	for _, thread := range threads {
		if text := waiting(thread); text != "" {
			fmt.Println("init: waits:", text)
		}
	}
}

// waiting describes a thread of a program; empty for the kernel's own that are at rest.
func waiting(thread string) string {
	stat, err := os.ReadFile(filepath.Join(thread, "stat"))
	end := bytes.LastIndexByte(stat, ')')
	if err != nil || end < 0 || end+2 >= len(stat) {
		return "" // it has ended
	}
	state := string(stat[end+2])
	command, _ := os.ReadFile(filepath.Join(thread, "cmdline"))
	if len(command) == 0 && state != "D" && state != "R" && state != "Z" {
		return ""
	}
	stack, _ := os.ReadFile(filepath.Join(thread, "stack"))
	var frames []string
	for line := range strings.Lines(string(stack)) {
		_, frame, _ := strings.Cut(strings.TrimSpace(line), " ")
		frame, _, _ = strings.Cut(frame, "+")
		frames = append(frames, frame)
	}
	return fmt.Sprintf("%s %s in %s", stat[:end+1], state, strings.Join(frames, " < "))
}
