package driver

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// batch is how many rows one insert fills.
const batch = 1000

// filler makes a row of loadgen_accounts as wide as one of TPC-B's, so that 100,000 take some
// 13 MB.
var filler = strings.Repeat("x", 84)

// makeTables makes and fills the tables of all profiles unless a table that is made last says
// that they are complete. Larger ones will do; smaller ones are refused, not dropped.
func makeTables(ctx context.Context, c conn, scale int, log *slog.Logger) error {
	where := "table_schema = current_schema()"
	if c.Engine() == "mysql" {
		where = "table_schema = database()"
	}
	n, err := c.Read(ctx, "select count(*) from information_schema.tables where table_name = 'loadgen_ready' and "+where)
	if err != nil {
		return fmt.Errorf("looking for loadgen's tables: %w", err)
	}
	if n > 0 {
		have, err := c.Read(ctx, "select scale from loadgen_ready")
		if err != nil {
			return fmt.Errorf("reading the scale of loadgen's tables: %w", err)
		}
		if have < int64(scale) {
			return adapter.Final(fmt.Errorf("loadgen's tables have scale %d, which is below the %d asked for; drop table loadgen_ready to have them made again", have, scale))
		}
		return nil
	}
	log.Info("making loadgen's tables", "scale", scale)
	for _, statement := range []string{
		"drop table if exists loadgen_accounts", "drop table if exists loadgen_tellers",
		"drop table if exists loadgen_branches", "drop table if exists loadgen_history",
		"create table loadgen_accounts (id int primary key, balance int not null, filler char(84) not null)",
		"create table loadgen_tellers (id int primary key, balance int not null)",
		"create table loadgen_branches (id int primary key, balance int not null)",
		"create table loadgen_history (id int primary key, account int, teller int, branch int, delta int not null, at timestamp)",
	} {
		if err := c.Exec(ctx, statement); err != nil {
			return fmt.Errorf("making loadgen's tables: %w", err)
		}
	}
	for _, t := range []struct {
		insert, row string
		rows        int
	}{
		{"insert into loadgen_branches (id, balance) values ", "(%, 0)", scale},
		{"insert into loadgen_tellers (id, balance) values ", "(%, 0)", scale * tellersPerScale},
		{"insert into loadgen_history (id, delta) values ", "(%, 0)", historyRows},
		{"insert into loadgen_accounts (id, balance, filler) values ", "(%, 0, '" + filler + "')", scale * accountsPerScale},
	} {
		if err := fill(ctx, c, t.insert, t.row, t.rows); err != nil {
			return fmt.Errorf("filling loadgen's tables: %w", err)
		}
	}
	for _, statement := range []string{
		"create table loadgen_ready (scale int not null)",
		"insert into loadgen_ready values (" + strconv.Itoa(scale) + ")",
	} {
		if err := c.Exec(ctx, statement); err != nil {
			return fmt.Errorf("making loadgen's tables: %w", err)
		}
	}
	return nil
}

// fill inserts rows 1 to n, one by each % of row.
func fill(ctx context.Context, c conn, insert, row string, n int) error {
	before, after, _ := strings.Cut(row, "%")
	for low := 1; low <= n; low += batch {
		var b strings.Builder
		b.WriteString(insert)
		for i := low; i < low+batch && i <= n; i++ {
			if i > low {
				b.WriteByte(',')
			}
			b.WriteString(before + strconv.Itoa(i) + after)
		}
		if err := c.Exec(ctx, b.String()); err != nil {
			return err
		}
	}
	return nil
}
