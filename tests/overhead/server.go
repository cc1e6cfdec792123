package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/tests/pgserver"
)

// server is the PostgreSQL server that is measured; it runs on this machine.
type server struct {
	// pid is its main process, program that process's file.
	pid     int
	program string
	version string
}

// server queries the server's properties.
func (o options) server(ctx context.Context) (server, error) {
	c, err := pgx.Connect(ctx, o.dsn)
	if err != nil {
		return server{}, err
	}
	defer c.Close(ctx)
	var s server
	var pid string
	err = c.QueryRow(ctx, `select split_part(pg_read_file('postmaster.pid'), E'\n', 1), current_setting('server_version')`).Scan(&pid, &s.version)
	if err != nil {
		return server{}, fmt.Errorf("server's PID: %w", err)
	}
	if s.pid, err = strconv.Atoi(pid); err != nil {
		return server{}, fmt.Errorf("server's PID: %w", err)
	}
	if s.program, err = os.Readlink(fmt.Sprintf("/proc/%d/exe", s.pid)); err != nil {
		return server{}, fmt.Errorf("the server must run on this machine and outside a PID namespace: %w", err)
	}
	return s, nil
}

// ownServer starts a server with pgbench's tables, all of which fit its shared buffers.
func (o options) ownServer(ctx context.Context) (*pgserver.Server, error) {
	initdb, err := pgserver.Tool("initdb")
	if err != nil {
		return nil, err
	}
	postgres, err := pgserver.Tool("postgres")
	if err != nil {
		return nil, err
	}
	s, err := pgserver.Start(pgserver.Options{Initdb: initdb, Postgres: postgres, Settings: map[string]string{
		"cluster_name": "overhead", "shared_buffers": fmt.Sprintf("%dMB", 64+20*o.scale), "autovacuum": "off", "max_wal_size": "4GB",
	}})
	if err != nil {
		return nil, err
	}
	fill := exec.CommandContext(ctx, o.pgbench, "-i", "-q", "-s", strconv.Itoa(o.scale), s.URL)
	if out, err := fill.CombinedOutput(); err != nil {
		return nil, errors.Join(fmt.Errorf("pgbench -i: %w\n%s", err, out), s.Stop())
	}
	return s, nil
}
