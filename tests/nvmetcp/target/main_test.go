package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/plumbline/plumbline/tests/nvmetcp"
)

// The program serves a file, and ends with its context.
func TestRun(t *testing.T) {
	const (
		nqn    = "nqn.2026-11.io.plumbline:program"
		blocks = 100
	)
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(disk, make([]byte, blocks*nvmetcp.BlockSize), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	reader, writer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, writer, "127.0.0.1:0", disk, nvmetcp.Options{NQN: nqn})
		_ = writer.CloseWithError(fmt.Errorf("it has ended: %w", err))
		ended <- err
	}()
	var address string
	if _, err := fmt.Fscanf(reader, "listening at %s\n", &address); err != nil {
		t.Fatal(err)
	}
	h, err := nvmetcp.Connect(address, nqn, 1, nvmetcp.HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	data := bytes.Repeat([]byte("plumbline"), nvmetcp.BlockSize)
	if err := h.Write(0, blocks-9, data); err != nil || h.Blocks != blocks {
		t.Errorf("writing to the last of %d blocks: %v", h.Blocks, err)
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if there, err := os.ReadFile(disk); err != nil || !bytes.Equal(there[(blocks-9)*nvmetcp.BlockSize:], data) {
		t.Errorf("the file has something else: %v", err)
	}
}

func TestNoDisk(t *testing.T) {
	if err := run(t.Context(), io.Discard, "127.0.0.1:0", filepath.Join(t.TempDir(), "none"), nvmetcp.Options{NQN: "nqn"}); !os.IsNotExist(err) {
		t.Errorf("a disk that there is not: %v", err)
	}
}
