package sysbench

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
)

// noteChange gives up a mark that waits for somebody's transaction, and logs that.
func TestMarkThatWaits(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	tool := newTool(t, Target{"postgres", db.DSN()})
	if err := tool.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	other, err := adapter.Connect(t.Context(), db.DSN())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(context.Background())
	if _, err := other.Exec(t.Context(), "begin; lock table sbtest1 in access exclusive mode"); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	tool.log = slog.New(slog.NewTextHandler(&log, nil))
	tool.config.Script = "oltp_insert"
	tool.noteChange(t.Context())
	if tool.noted || !strings.Contains(log.String(), "another test would take them as they are") {
		t.Errorf("noted: %v; the log is %q", tool.noted, &log)
	}
}
