package pgbench

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// madeHere is the comment on pgbench_branches that tells tables that loadgen made from others'. pgbench drops the table when it
// makes it afresh, and the comment goes with it.
const madeHere = "made by loadgen"

// Init makes pgbench's tables unless they are there, complete and of the scale asked for. It may be called again at
// any time: tables that an earlier, interrupted call left half made are made afresh, and so are loadgen's own of
// another scale. Complete ones of another scale that loadgen did not make are refused, and not touched.
func (t *Tool) Init(ctx context.Context) error {
	there, err := t.existing(ctx)
	switch {
	case err != nil:
		return err
	case there.scale == t.config.Scale:
		return nil
	case there.scale > 0 && !there.ours:
		return adapter.Final(fmt.Errorf("pgbench's tables exist with scale %d, not %d, and loadgen did not make them: "+
			"ask for scale %[1]d, take another database, or drop them", there.scale, t.config.Scale))
	case there.scale > 0:
		t.log.Warn("pgbench's tables have another scale and are made afresh", "scale", there.scale, "asked", t.config.Scale)
	}
	_, err = t.Remake(ctx)
	return err
}

// InitPhase is one step of pgbench's making of its tables.
type InitPhase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// Remake drops pgbench's tables and makes them afresh. It returns how long each phase took by
// pgbench's own clock.
func (t *Tool) Remake(ctx context.Context) ([]InitPhase, error) {
	command := []string{t.config.Path, "--initialize", "--quiet", "--scale=" + strconv.Itoa(t.config.Scale)}
	if t.dsn != "" {
		command = append(command, t.dsn)
	}
	t.log.Info("making pgbench's tables", "scale", t.config.Scale)
	var last string
	var phases []InitPhase
	p := adapter.Process{Command: command, Env: t.env, Stop: syscall.SIGTERM, Grace: stopGrace, Stderr: func(line string) {
		t.log.Debug("pgbench says", "line", line)
		if strings.HasPrefix(line, "pgbench: error: ") {
			last = line
		}
		if strings.HasPrefix(line, "done in ") {
			phases = ParseInit(line)
		}
	}}
	err := p.Run(ctx)
	if adapter.NotStarted(err) {
		return nil, adapter.Final(err)
	}
	if err != nil {
		return nil, adapter.Describe("pgbench --initialize", err, last)
	}
	return phases, t.sign(ctx)
}

// sign marks the tables as loadgen's.
func (t *Tool) sign(ctx context.Context) error {
	db, err := adapter.Connect(ctx, t.config.DSN)
	if err != nil {
		return err
	}
	defer db.Close(context.WithoutCancel(ctx))
	if _, err := db.Exec(ctx, "comment on table pgbench_branches is '"+madeHere+"'"); err != nil {
		return fmt.Errorf("marking pgbench's tables as loadgen's: %w", err)
	}
	return nil
}

// initPhase fits a phase in the last line of pgbench --initialize (13 to 18).
var initPhase = regexp.MustCompile(`([a-z][a-z -]*) ([0-9.]+) s[,)]`)

// ParseInit reads that line: "done in 0.28 s (drop tables 0.00 s, create tables 0.01 s, …)."
func ParseInit(line string) (phases []InitPhase) {
	_, list, ok := strings.Cut(line, "(")
	if !ok {
		return nil
	}
	for _, m := range initPhase.FindAllStringSubmatch(list, -1) {
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			continue
		}
		phases = append(phases, InitPhase{m[1], seconds})
	}
	return phases
}

// tables are pgbench's as they are in the database.
type tables struct {
	scale int // 0: there are none, or they are half made
	ours  bool
}

// existing looks at the tables. pgbench makes the primary keys last, so they tell a complete set from the rest of an
// interrupted one.
func (t *Tool) existing(ctx context.Context) (tables, error) {
	db, err := adapter.Connect(ctx, t.config.DSN)
	if err != nil {
		return tables{}, err
	}
	defer db.Close(context.WithoutCancel(ctx))
	var there tables
	var keys int
	err = db.QueryRow(ctx, `select count(*), coalesce(obj_description(to_regclass('pgbench_branches'), 'pg_class'), '') = $1
		from pg_index where indisprimary and indrelid in
		(to_regclass('pgbench_accounts'), to_regclass('pgbench_branches'), to_regclass('pgbench_tellers'))`, madeHere).Scan(&keys, &there.ours)
	if err != nil {
		return tables{}, fmt.Errorf("looking for pgbench's tables: %w", err)
	}
	if keys < 3 {
		return tables{}, nil
	}
	if err := db.QueryRow(ctx, "select count(*) from pgbench_branches").Scan(&there.scale); err != nil {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "42P01" { // undefined_table
			return tables{}, nil
		}
		return tables{}, fmt.Errorf("reading pgbench's scale: %w", err)
	}
	return there, nil
}
