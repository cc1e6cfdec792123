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

// Init makes pgbench's tables unless they are there and complete. It may be called again at
// any time: tables that an earlier, interrupted call left half made are made afresh; complete
// ones are never touched, whatever their scale.
func (t *Tool) Init(ctx context.Context) error {
	scale, err := t.existing(ctx)
	if err != nil {
		return err
	}
	if scale > 0 {
		if scale != t.config.Scale {
			t.log.Warn("pgbench's tables exist with another scale and are left as they are", "scale", scale, "asked", t.config.Scale)
		}
		return nil
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
	return phases, nil
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

// existing returns the scale of complete tables, 0 if there are none. pgbench makes the primary
// keys last, so they tell a complete set from the rest of an interrupted one.
func (t *Tool) existing(ctx context.Context) (int, error) {
	db, err := adapter.Connect(ctx, t.config.DSN)
	if err != nil {
		return 0, err
	}
	defer db.Close(context.WithoutCancel(ctx))
	var keys int
	err = db.QueryRow(ctx, `select count(*) from pg_index where indisprimary and indrelid in
		(to_regclass('pgbench_accounts'), to_regclass('pgbench_branches'), to_regclass('pgbench_tellers'))`).Scan(&keys)
	if err != nil {
		return 0, fmt.Errorf("looking for pgbench's tables: %w", err)
	}
	if keys < 3 {
		return 0, nil
	}
	var scale int
	if err := db.QueryRow(ctx, "select count(*) from pgbench_branches").Scan(&scale); err != nil {
		var pg *pgconn.PgError
		if errors.As(err, &pg) && pg.Code == "42P01" { // undefined_table
			return 0, nil
		}
		return 0, fmt.Errorf("reading pgbench's scale: %w", err)
	}
	return scale, nil
}
