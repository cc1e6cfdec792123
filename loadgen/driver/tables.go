package driver

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	// batch is how many rows one insert fills. It is one transaction: all of its rows are there or none.
	batch = 1000
	// generatedBatch is that of an engine that makes the rows itself.
	generatedBatch = 20_000
	// maxScale is where an account's key, of 32 bits, ends.
	maxScale = (1<<31 - 1) / accountsPerScale
	// bytesPerScale is what the accounts of scale 1 take in PostgreSQL: 65 rows to a page of 8 KiB, without
	// their index. InnoDB takes a little more.
	bytesPerScale = accountsPerScale / 65 * 8192
	// progressPause is the time between two lines on how far the filling is.
	progressPause = 10 * time.Second
)

// ScaleFor is the least scale whose accounts take so many bytes.
func ScaleFor(bytes int64) int { return int((bytes + bytesPerScale - 1) / bytesPerScale) }

// filler makes a row of loadgen_accounts as wide as one of TPC-B's, so that 100,000 take some
// 13 MB.
var filler = strings.Repeat("x", 84)

// table is one of loadgen's, whose keys are 1 to rows. In its columns % is a row's key.
type table struct {
	name, definition, columns, row string
	rows                           int
}

func tables(scale int) []table {
	return []table{
		{"loadgen_branches", "id int primary key, balance int not null", "id, balance", "%, 0", scale},
		{"loadgen_tellers", "id int primary key, balance int not null", "id, balance", "%, 0", scale * tellersPerScale},
		{"loadgen_history", "id int primary key, account int, teller int, branch int, delta int not null, at timestamp", "id, delta", "%, 0", historyRows},
		{"loadgen_accounts", "id int primary key, balance int not null, filler char(84) not null", "id, balance, filler", "%, 0, '" + filler + "'", scale * accountsPerScale},
	}
}

// makeTables makes and fills the tables of all profiles unless a table that is made last shows that they are complete.
// Larger ones will do; to smaller ones rows are added. What was begun and interrupted goes on where it was: keys are
// filled in their order. Filling takes as long as it takes; within bounds the check before it.
func makeTables(ctx context.Context, c conn, scale int, within time.Duration, filled prometheus.Gauge, log *slog.Logger) error {
	if ready, err := tablesReady(ctx, c, scale, within); err != nil || ready {
		if ready {
			filled.Set(1)
		}
		return err
	}
	p := &progress{filled: filled, log: log, started: time.Now(), reported: time.Now()}
	there := map[string]int{}
	for _, t := range tables(scale) {
		if err := c.Exec(ctx, "create table if not exists "+t.name+" ("+t.definition+")"); err != nil {
			return fmt.Errorf("making loadgen's tables: %w", err)
		}
		last, err := c.Read(ctx, "select coalesce(max(id), 0) from "+t.name)
		if err != nil {
			return fmt.Errorf("reading how far loadgen's tables are filled: %w", err)
		}
		there[t.name] = min(int(last), t.rows)
		p.rows += t.rows
		p.begun += there[t.name]
	}
	p.done = p.begun
	log.Info("filling loadgen's tables", "scale", scale, "rows", p.rows, "there", p.begun)
	for _, t := range tables(scale) {
		if err := fill(ctx, c, t, there[t.name], p); err != nil {
			return fmt.Errorf("filling loadgen's tables: %w", err)
		}
	}
	for _, statement := range []string{
		"create table if not exists loadgen_ready (scale int not null)",
		"insert into loadgen_ready values (" + strconv.Itoa(scale) + ")",
	} {
		if err := c.Exec(ctx, statement); err != nil {
			return fmt.Errorf("making loadgen's tables: %w", err)
		}
	}
	log.Info("loadgen's tables are filled", "scale", scale, "rows", p.rows, "took", time.Since(p.started).Round(time.Second))
	return nil
}

// tablesReady reports whether all tables are there, as large or larger, by the table that is made last. A server that
// takes connections and does not answer is an error after within.
func tablesReady(ctx context.Context, c conn, scale int, within time.Duration) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	where := "table_schema = current_schema()"
	if c.Engine() == "mysql" {
		where = "table_schema = database()"
	}
	n, err := c.Read(ctx, "select count(*) from information_schema.tables where table_name = 'loadgen_ready' and "+where)
	if err != nil {
		return false, fmt.Errorf("looking for loadgen's tables: %w", err)
	}
	if n == 0 {
		return false, nil
	}
	have, err := c.Read(ctx, "select coalesce(max(scale), 0) from loadgen_ready")
	if err != nil {
		return false, fmt.Errorf("reading the scale of loadgen's tables: %w", err)
	}
	return have >= int64(scale), nil
}

// progress reports how far the filling is.
type progress struct {
	filled prometheus.Gauge
	log    *slog.Logger
	// rows are there in the end; begun were there before, done are there now.
	rows, begun, done int
	started, reported time.Time
}

func (p *progress) add(rows int) {
	p.done += rows
	p.filled.Set(float64(p.done) / float64(p.rows))
	now := time.Now()
	if now.Sub(p.reported) < progressPause {
		return
	}
	p.reported = now
	rate := float64(p.done-p.begun) / now.Sub(p.started).Seconds()
	left := time.Duration(float64(p.rows-p.done) / rate * float64(time.Second))
	p.log.Info("filling loadgen's tables", "done", fmt.Sprintf("%.1f %%", 100*float64(p.done)/float64(p.rows)),
		"rows", p.done, "of", p.rows, "rows_per_second", int(rate), "left", left.Round(time.Second))
}

// fill inserts the rows after last.
func fill(ctx context.Context, c conn, t table, last int, p *progress) error {
	generated := c.Engine() == "postgres"
	size := batch
	if generated {
		size = generatedBatch
	}
	before, after, _ := strings.Cut(t.row, "%")
	for last < t.rows {
		next := min(last+size, t.rows)
		var b strings.Builder
		b.WriteString("insert into " + t.name + " (" + t.columns + ") ")
		if generated {
			fmt.Fprintf(&b, "select %sg%s from generate_series(%d, %d) as g", before, after, last+1, next)
		} else {
			b.WriteString("values ")
			for i := last + 1; i <= next; i++ {
				if i > last+1 {
					b.WriteByte(',')
				}
				b.WriteString("(" + before + strconv.Itoa(i) + after + ")")
			}
		}
		if err := c.Exec(ctx, b.String()); err != nil {
			return err
		}
		p.add(next - last)
		last = next
	}
	return nil
}
