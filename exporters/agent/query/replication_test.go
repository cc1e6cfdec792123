package query

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// A replica's stream lasts for days and is no statement: it is in no count, no mean and no gauge of what is under way.
// What else such a session queries is.
func TestQueryReplicationStream(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "primary", "autovacuum": "off", "wal_level": "replica"}, nil)
	querytest.WaitForServer(t, q, "primary")
	c, err := pgconn.Connect(t.Context(), pg.URL+"&replication=true")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(t.Context())
	before := querytest.AtRest(t, q, "primary")
	answer, err := c.Exec(t.Context(), "IDENTIFY_SYSTEM").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	position := string(answer[0].Rows[0][2])
	c.Frontend().Send(&pgproto3.Query{String: "START_REPLICATION PHYSICAL " + position})
	if err := c.Frontend().Flush(); err != nil {
		t.Fatal(err)
	}
	message, err := c.ReceiveMessage(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := message.(*pgproto3.CopyBothResponse); !ok {
		t.Fatalf("the server answers with %T", message)
	}
	other := pg.Connect(t)
	querytest.During(t, q, "primary", 2, func() {
		querytest.Run(t, other, "select 1")
		querytest.Run(t, other, "select 2")
	})
	if n := underWay(t, q, "primary"); len(n) > 0 {
		t.Errorf("statements under way: %v, and there is only a replica's stream", n)
	}
	querytest.WantCounts(t, querytest.Collect(t, q, "primary").Minus(before), map[string]uint64{"other": 1, "select": 2})
}
