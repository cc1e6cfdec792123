package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/plumbline/plumbline/tests/pgserver"
	"github.com/plumbline/plumbline/tests/rig"
)

// draw is how long one operation is held back.
type draw func(r *rand.Rand) time.Duration

func constant(d time.Duration) draw { return func(*rand.Rand) time.Duration { return d } }

func exponential(mean time.Duration) draw {
	return func(r *rand.Rand) time.Duration { return time.Duration(r.ExpFloat64() * float64(mean)) }
}

// bimodal takes the second time for a share of all.
func bimodal(most, other time.Duration, share float64) draw {
	return func(r *rand.Rand) time.Duration {
		if r.Float64() < share {
			return other
		}
		return most
	}
}

// store is a storage class of the proof: a file system that holds back, or a plain folder.
type store struct {
	name               string
	sync, write, reads draw
	// folder is a plain one, on whatever disk the machine has.
	folder bool
}

var stores = []store{
	{name: "2 ms", sync: constant(2 * time.Millisecond), reads: constant(time.Millisecond)},
	{name: "8 ms", sync: constant(8 * time.Millisecond), reads: constant(5 * time.Millisecond)},
	{name: "exponential 4 ms", sync: exponential(4 * time.Millisecond), reads: exponential(3 * time.Millisecond)},
	{name: "1 ms, a tenth 12 ms", sync: bimodal(time.Millisecond, 12*time.Millisecond, 0.1), reads: bimodal(500*time.Microsecond, 8*time.Millisecond, 0.1)},
	{name: "writes 1.5 ms, syncs exponential 2 ms", sync: exponential(2 * time.Millisecond), write: constant(1500 * time.Microsecond), reads: exponential(time.Millisecond)},
	{name: "folder", folder: true},
}

// server is the agent's name of the server on it.
func (s store) server() string {
	return "predict-" + strings.NewReplacer(" ", "-", ",", "").Replace(s.name)
}

// server is a PostgreSQL on a store.
type server struct {
	*pgserver.Server
	store store
	// dir is a folder of the store beside the server's.
	dir string
}

// quiet are settings with which a server does no background work; its few buffers make it read.
var quiet = map[string]string{
	"shared_buffers": "1MB", "autovacuum": "off", "checkpoint_timeout": "1h", "bgwriter_lru_maxpages": "0",
	"max_parallel_workers_per_gather": "0", "jit": "off", "min_wal_size": "512MB",
}

// start starts a server on a store, which holds nothing back yet.
func start(t *rig.Scope, s store, seed uint64) *server {
	dir, err := os.MkdirTemp("/var/tmp", "plumbline-predict-")
	t.Check(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Check(os.Chmod(dir, 0o755))
	at := dir
	var files *rig.SlowFiles
	if !s.folder {
		backing := filepath.Join(dir, "backing")
		at = filepath.Join(dir, "mounted")
		t.Check(os.Mkdir(backing, 0o755))
		t.Check(os.Mkdir(at, 0o755))
		files, err = rig.NewSlowFiles(t, backing, at)
		t.Check(err)
	}
	inner := filepath.Join(at, "pg")
	t.Check(os.Mkdir(inner, 0o700))
	if out, err := exec.Command("chown", pgserver.Owner, inner).CombinedOutput(); err != nil {
		t.Fatalf("chown: %w: %s", err, out)
	}
	settings := map[string]string{"cluster_name": s.server()}
	for k, v := range quiet {
		settings[k] = v
	}
	p, err := pgserver.Start(pgserver.Options{Dir: inner, Initdb: rig.Tool(t, "initdb"), Postgres: rig.Tool(t, "postgres"), Settings: settings})
	t.Check(err)
	t.Cleanup(func() { t.Check(p.Stop()) })
	v := &server{Server: p, store: s, dir: at}
	v.fill(t)
	if files != nil {
		for i, d := range []struct {
			delay *rig.Delay
			by    draw
		}{{files.Syncs, s.sync}, {files.Writes, s.write}, {files.Reads, s.reads}} {
			if d.by != nil {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				d.delay.SetBy(func() time.Duration { return d.by(r) })
			}
		}
		// Stopping the server need not wait for the delays.
		t.Cleanup(func() {
			for _, d := range []*rig.Delay{files.Syncs, files.Writes, files.Reads} {
				d.Set(0)
			}
		})
	}
	return v
}

// The table of pages has one row in each.
const (
	pages    = 5_003
	accounts = 400
)

// fill makes the tables of the loads, and the log's segments that they will use.
func (s *server) fill(t *rig.Scope) {
	c := connect(t, s.URL)
	defer c.close()
	for _, text := range []string{
		"create table target (i int)",
		"create table accounts (i int primary key, balance int) with (fillfactor = 50)",
		fmt.Sprintf("insert into accounts select i, 0 from generate_series(0, %d) i", accounts-1),
		"create table pages (i int, filler text)",
		"alter table pages alter filler set storage plain",
		fmt.Sprintf("insert into pages select i, repeat('x', 5000) from generate_series(1, %d) i", pages),
		"vacuum (freeze) pages", "checkpoint",
	} {
		t.Check(c.do(text))
	}
}
