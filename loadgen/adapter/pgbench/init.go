package pgbench

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

// madeHere is the comment on pgbench_branches that marks tables that loadgen made. pgbench drops the table when it
// makes it afresh, and the comment goes with it.
const madeHere = "made by loadgen"

// Init makes pgbench's tables unless they are there, complete and of the requested scale. It may be called again at
// any time: tables that an earlier, interrupted call left half made are made afresh, and so are loadgen's own of
// another scale. Others that loadgen did not make are refused, complete or not, and not touched. While another loadgen
// makes tables in the database, it waits.
func (t *Tool) Init(ctx context.Context) error {
	there, err := t.existing(ctx)
	if err != nil || there.scale == t.config.Scale && there.making == 0 {
		return err
	}
	return t.alone(ctx, func(ctx context.Context) error {
		there, err := t.existing(ctx)
		switch {
		case err != nil:
			return err
		case there.scale == t.config.Scale:
			t.finish(ctx, there)
			return nil
		}
		if err := there.foreign(t.config.Scale); err != nil {
			return adapter.Final(err)
		}
		if there.scale > 0 {
			t.log.Warn("pgbench's tables have another scale and are made afresh", "scale", there.scale, "configured", t.config.Scale)
		}
		_, err = t.make(ctx, there)
		return err
	})
}

// alone does something under the lock under which tables are made.
func (t *Tool) alone(ctx context.Context, do func(context.Context) error) error {
	return adapter.Alone{Tool: "pgbench", Log: t.log, Open: func(ctx context.Context) (adapter.Lock, error) {
		return adapter.PostgresLock(ctx, t.config.DSN, makingTable)
	}}.Do(ctx, do)
}

// InitPhase is one step of pgbench's making of its tables.
type InitPhase struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// Remake drops pgbench's tables and makes them afresh, unless loadgen did not make them. It returns how long each phase
// took by pgbench's own clock.
func (t *Tool) Remake(ctx context.Context) (phases []InitPhase, err error) {
	err = t.alone(ctx, func(ctx context.Context) error {
		there, err := t.existing(ctx)
		if err != nil {
			return err
		}
		if err := there.foreign(0); err != nil {
			return adapter.Final(err)
		}
		phases, err = t.make(ctx, there)
		return err
	})
	return phases, err
}

// make makes the tables in the place of loadgen's own.
func (t *Tool) make(ctx context.Context, there tables) ([]InitPhase, error) {
	// Complete ones of an interrupted call would be somebody's to a call after this one.
	t.finish(ctx, there)
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	command := []string{t.config.Path, "--initialize", "--quiet", "--scale=" + strconv.Itoa(t.config.Scale)}
	if t.dsn != "" {
		command = append(command, t.dsn)
	}
	t.log.Info("making pgbench's tables", "scale", t.config.Scale)
	var last string
	var phases []InitPhase
	p := adapter.Process{Command: command, Env: t.env, Stop: syscall.SIGTERM, Grace: stopGrace, Stderr: func(line string) {
		t.log.Debug("line of pgbench", "line", line)
		if strings.HasPrefix(line, "pgbench: error: ") || strings.HasPrefix(line, "pgbench: fatal: ") {
			last = line
		}
		if strings.HasPrefix(line, "done in ") {
			phases = ParseInit(line)
		}
	}}
	err := p.Run(ctx)
	if adapter.NotStarted(err) {
		return nil, errors.Join(adapter.Final(err), t.done(ctx))
	}
	if err != nil {
		failed := adapter.ToolError(adapter.Describe("pgbench --initialize", err, last), last)
		if last != "" && adapter.KilledBy(err) == 0 && !strings.Contains(last, "ERROR:") && adapter.KindOf(last) == metrics.Other && !transient.MatchString(last) {
			failed = errors.Join(adapter.Final(failed), t.done(ctx)) // such as a scale that it does not take
		}
		return nil, failed
	}
	t.finish(ctx, tables{scale: t.config.Scale, making: t.config.Scale})
	return phases, nil
}

// finish marks complete tables of a call as loadgen's, be it this one or one that was interrupted when it had made
// them. Tables that cannot be marked are as good for a run.
func (t *Tool) finish(ctx context.Context, there tables) {
	if there.ours || there.scale == 0 || there.scale != there.making {
		return
	}
	if err := errors.Join(t.sign(ctx), t.done(ctx)); err != nil {
		t.log.Warn("pgbench's tables are made, but not marked as loadgen's: it will refuse to make them afresh", "err", err)
	}
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
	any    bool // of them are there
	scale  int  // 0: there are none, or they are half made
	ours   bool
	making int // the scale of those that loadgen makes, or made until it was interrupted; 0: it did not
}

// foreign returns an error if loadgen did not make the tables, and must not drop them for those of the requested scale;
// 0: for any.
func (t tables) foreign(requested int) error {
	const instead = "take another database, or drop them (pgbench -i -I d)"
	switch {
	case !t.any || t.ours || t.making > 0 && (t.scale == 0 || t.scale == t.making):
		return nil
	case t.scale == 0:
		return fmt.Errorf("tables of pgbench exist, but not all of them with a primary key, and loadgen did not make them: their making may not be over, "+
			"or was without that step (pgbench -i -I p does it); wait for its end, %s", instead)
	case requested == 0:
		return fmt.Errorf("pgbench's tables exist with scale %d, and loadgen did not make them, so that it does not make them afresh: %s", t.scale, instead)
	}
	return fmt.Errorf("pgbench's tables exist with scale %d, not %d, and loadgen did not make them: set scale %[1]d, %[3]s", t.scale, requested, instead)
}

// existing reads which tables there are. pgbench makes the primary keys last, so they distinguish a complete set from
// the rest of an interrupted one, which is not read: its maker may hold it locked.
func (t *Tool) existing(ctx context.Context) (tables, error) {
	db, err := adapter.Connect(ctx, t.config.DSN)
	if err != nil {
		return tables{}, err
	}
	defer db.Close(context.WithoutCancel(ctx))
	var there tables
	var keys int
	var making string
	err = db.QueryRow(ctx, `select coalesce(to_regclass('pgbench_accounts'), to_regclass('pgbench_branches'), to_regclass('pgbench_tellers'),
		to_regclass('pgbench_history')) is not null, count(*), coalesce(obj_description(to_regclass('pgbench_branches'), 'pg_class'), '') = $1,
		coalesce(obj_description(to_regclass($2), 'pg_class'), '')
		from pg_index where indisprimary and indrelid in
		(to_regclass('pgbench_accounts'), to_regclass('pgbench_branches'), to_regclass('pgbench_tellers'))`,
		madeHere, makingTable).Scan(&there.any, &keys, &there.ours, &making)
	if err != nil {
		return tables{}, fmt.Errorf("looking for pgbench's tables: %w", err)
	}
	there.making = makingOf(making)
	if keys < 3 {
		return there, nil
	}
	if err := db.QueryRow(ctx, "select count(*) from pgbench_branches").Scan(&there.scale); err != nil {
		return tables{}, fmt.Errorf("reading pgbench's scale: %w", err)
	}
	return there, nil
}
