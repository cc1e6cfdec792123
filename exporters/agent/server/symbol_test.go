package server_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The variable's address, found in the main process, is right in a client's process, which shows that it waits for its
// client.
func TestVariableAddress(t *testing.T) {
	pg := servertest.StartPostgres(t, nil, nil)
	at, err := server.VariableAddress("/proc", pg.PID, server.WaitEventVariable)
	if err != nil {
		t.Fatal(err)
	}
	var pid int
	if err := pg.Connect(t).QueryRow(context.Background(), "select pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	// The class of WaitEventClientRead, see PostgreSQL's wait_classes.h.
	const client = 0x06
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		var pointer [8]byte
		if _, err := memory.ReadAt(pointer[:], int64(at)); err != nil {
			return err
		}
		var event [4]byte
		if _, err := memory.ReadAt(event[:], int64(binary.NativeEndian.Uint64(pointer[:]))); err != nil {
			return err
		}
		if e := binary.NativeEndian.Uint32(event[:]); e>>24 != client {
			return fmt.Errorf("an idle session waits for %#x", e)
		}
		return nil
	})
}

// A program without symbols gives an error that names what is missing.
func TestVariableAddressWithoutSymbol(t *testing.T) {
	_, err := server.VariableAddress("/proc", os.Getpid(), server.WaitEventVariable)
	if err == nil || !strings.Contains(err.Error(), "symbol") {
		t.Errorf("error %v, want one about the symbol", err)
	}
}
