package query

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Members of a group replicate beside their clients, over a port of their own or over the clients': what a client sends is counted
// where it was sent, and nothing that members send each other is a statement.
func TestQueryMySQLGroup(t *testing.T) {
	for _, stack := range []string{"XCOM", "MYSQL"} {
		t.Run(stack, func(t *testing.T) { testMySQLGroup(t, stack) })
	}
}

func testMySQLGroup(t *testing.T, stack string) {
	var pids []int
	var members []*sql.DB
	var addresses []string
	q := startQuery(t)
	for i := range 2 {
		my := servertest.StartMySQL(t, fmt.Sprintf("--server-id=%d", i+1), "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--report-host=127.0.0.1",
			"--plugin-load-add=group_replication.so", "--loose-group-replication-start-on-boot=OFF", "--loose-group-replication-communication-stack="+stack,
			"--loose-group-replication-group-name=aaaaaaaa-0000-0000-0000-000000000001", "--loose-group-replication-recovery-get-public-key=ON")
		db := my.Open(t, nil)
		db.SetMaxOpenConns(1)
		address := fmt.Sprintf("127.0.0.1:%d", my.Port)
		if stack == "XCOM" {
			address = testkit.FreeAddress(t)
		}
		pids, members, addresses = append(pids, my.PID), append(members, db), append(addresses, address)
	}
	for i, db := range members {
		for _, statement := range []string{
			"set sql_log_bin = 0", "create user r identified by 'r'", "grant replication slave, connection_admin, backup_admin, group_replication_stream on *.* to r", "set sql_log_bin = 1",
			"change replication source to source_user = 'r', source_password = 'r' for channel 'group_replication_recovery'",
			"set global group_replication_local_address = '" + addresses[i] + "'", "set global group_replication_group_seeds = '" + addresses[0] + "," + addresses[1] + "'",
			fmt.Sprintf("set global group_replication_bootstrap_group = %v", i == 0), "start group_replication", "set global group_replication_bootstrap_group = false"} {
			execMySQL(t, db, statement)
		}
	}
	online := func(db *sql.DB) error {
		var n int
		if err := db.QueryRow("select count(*) from performance_schema.replication_group_members where member_state = 'ONLINE'").Scan(&n); err != nil || n != 2 {
			return fmt.Errorf("%d members are online: %v", n, err)
		}
		return nil
	}
	for _, db := range members {
		testkit.Eventually(t, testkit.DefaultTimeout, func() error { return online(db) })
	}
	wantMembers(t, q, pids, members)
}

// Of two members of a Galera cluster, likewise.
func TestQueryGalera(t *testing.T) {
	var pids []int
	var members []*sql.DB
	q := startQuery(t)
	for _, my := range servertest.StartGalera(t, 2) {
		db := my.Open(t, nil)
		db.SetMaxOpenConns(1)
		pids, members = append(pids, my.PID), append(members, db)
	}
	for _, db := range members {
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			var name, state string
			if err := db.QueryRow("show status like 'wsrep_local_state_comment'").Scan(&name, &state); err != nil || state != "Synced" {
				return fmt.Errorf("a member is %q: %v", state, err)
			}
			return nil
		})
	}
	// They open their clients' port last, once they have joined.
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		if n := len(q.fleet.tracked); n != len(pids) {
			return fmt.Errorf("%d servers are followed", n)
		}
		for _, srv := range q.fleet.tracked {
			if len(srv.Ports) == 0 || srv.Waits {
				return fmt.Errorf("the ports of process %d: %v", srv.PID, srv.Ports)
			}
		}
		return nil
	})
	wantMembers(t, q, pids, members)
}

// wantMembers writes on the first of two members, and fails unless its statements, and the reads of the other one that wait for the last
// of them, are all that is counted.
func wantMembers(t *testing.T, q *query, pids []int, members []*sql.DB) {
	t.Helper()
	execMySQL(t, members[0], "create database d")
	execMySQL(t, members[0], "create table d.t (id int primary key, n int)")
	names := []string{defaultName(t, q, pids[0]), defaultName(t, q, pids[1])}
	before := []querytest.Seen{querytest.AtRest(t, q, names[0]), querytest.AtRest(t, q, names[1])}
	const each = 200
	for n := range each {
		for _, statement := range []string{"begin", fmt.Sprintf("insert into d.t values (%d, 0)", n), fmt.Sprintf("update d.t set n = id + 1 where id = %d", n), "commit",
			fmt.Sprintf("delete from d.t where id = %d", n-1)} {
			execMySQL(t, members[0], statement)
		}
	}
	want := map[string]uint64{"begin": each, "insert": each, "update": each, "commit": each, "delete": each}
	got := querytest.Since(t, q, names[0], before[0], querytest.SumOf(want))
	querytest.WantCounts(t, got, want)
	querytest.WantSum(t, got)
	// Nothing of it is a statement there but the reads that wait for it.
	reads := uint64(0)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		var last int
		reads++
		err := members[1].QueryRow("select max(n) from d.t").Scan(&last)
		if err == nil && last != each {
			err = fmt.Errorf("the other member has transaction %d of %d", last, each)
		}
		return err
	})
	querytest.WantCounts(t, querytest.Since(t, q, names[1], before[1], reads), map[string]uint64{"select": reads})
}
