package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/pgserver"
	"github.com/plumbline/plumbline/tests/rig"
)

const databaseSection = "Accuracy: phases of a PostgreSQL statement"

var phases = layers.Names(layers.IsPhase)

// database is a PostgreSQL server and the agent that measures it.
type database struct {
	*pgserver.Server
	t       *rig.Scope
	name    string
	agent   *agentproc.Agent
	client  *pgx.Conn
	control *pgx.Conn
}

// quiet are settings with which the server does no background work.
var quiet = map[string]string{
	"shared_buffers": "1MB", "autovacuum": "off", "checkpoint_timeout": "1h", "bgwriter_lru_maxpages": "0",
	"max_parallel_workers_per_gather": "0", "jit": "off", "deadlock_timeout": "1h",
}

// startDatabase starts a server with its data in dir, an empty folder, and the agent.
func startDatabase(t *rig.Scope, o options, name, dir string, flags ...string) *database {
	settings := map[string]string{"cluster_name": name}
	for k, v := range quiet {
		settings[k] = v
	}
	if dir != "" {
		out, err := exec.Command("chown", pgserver.Owner, dir).CombinedOutput()
		if err != nil {
			t.Fatalf("chown: %w: %s", err, out)
		}
	}
	s, err := pgserver.Start(pgserver.Options{Dir: dir, Initdb: rig.Tool(t, "initdb"), Postgres: rig.Tool(t, "postgres"), Settings: settings})
	t.Check(err)
	t.Cleanup(func() { t.Check(s.Stop()) })
	d := &database{Server: s, t: t, name: name}
	d.agent = startAgent(t, o, flags...)
	d.client, d.control = d.connect(), d.connect()
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		if d.scrape().Sum("plumbline_server_info", "server", name) != 1 {
			return fmt.Errorf("the agent does not follow %s yet", name)
		}
		return nil
	})
	return d
}

func (d *database) connect() *pgx.Conn {
	c, err := pgx.Connect(context.Background(), d.URL)
	d.t.Check(err)
	d.t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

func (d *database) scrape() agentproc.Metrics {
	m, err := d.agent.Scrape(context.Background())
	d.t.Check(err)
	return m
}

// do executes a statement in the simple protocol: one round trip, no preparation.
func (d *database) do(c *pgx.Conn, statement string) {
	if _, err := c.PgConn().Exec(context.Background(), statement).ReadAll(); err != nil {
		d.t.Fatalf("%s: %w", statement, err)
	}
}

// during makes n statements of a command by f, and returns the agent's means per statement.
func (d *database) during(command string, n int, f func()) sample {
	before := d.scrape()
	f()
	var after agentproc.Metrics
	of := []string{"server", d.name, "command", command}
	const duration = "plumbline_query_duration_seconds"
	// A client has its answer before the server's task gets to where it is counted.
	rig.Eventually(d.t, rig.DefaultTimeout, func() error {
		after = d.scrape()
		if got := after.Sum(duration, of...) - before.Sum(duration, of...); got != float64(n) {
			return fmt.Errorf("%v statements counted, %d made", got, n)
		}
		return nil
	})
	s := sample{truth: map[string]float64{}, reading: map[string]float64{},
		duration: (after.Seconds(duration, of...) - before.Seconds(duration, of...)) / float64(n)}
	for _, phase := range phases {
		by := append([]string{"phase", phase}, of...)
		const name = "plumbline_query_phase_seconds_total"
		s.reading[phase] = (after.Sum(name, by...) - before.Sum(name, by...)) / float64(n)
	}
	return s
}

// filesDatabase is a server on a file system that holds back, where each call on a file gets to.
type filesDatabase struct {
	*database
	files *rig.SlowFiles
	table
}

func startFilesDatabase(t *rig.Scope, o options, name string) *filesDatabase {
	t.Check(rig.OwnMounts())
	dir := tempDir(t)
	t.Check(os.Chmod(dir, 0o755))
	backing, at := filepath.Join(dir, "backing"), filepath.Join(dir, "mounted")
	t.Check(os.Mkdir(backing, 0o755))
	t.Check(os.Mkdir(at, 0o755))
	files, err := rig.NewSlowFiles(t, backing, at)
	t.Check(err)
	inner := filepath.Join(at, "pg")
	t.Check(os.Mkdir(inner, 0o700))
	d := &filesDatabase{database: startDatabase(t, o, name, inner), files: files}
	d.table = fill(d.database)
	punctual(t)
	return d
}

// delays are those of one round.
type delays struct{ read, write, sync time.Duration }

// round makes statements of a command with some delays, and has what was held back as truth.
func (d *filesDatabase) round(by delays, n int, f func() sample) sample {
	all := map[string]struct {
		delay *rig.Delay
		by    time.Duration
	}{"read": {d.files.Reads, by.read}, "write": {d.files.Writes, by.write}, "sync": {d.files.Syncs, by.sync}}
	for _, one := range all {
		one.delay.Set(one.by)
		one.delay.Take()
	}
	s := f()
	for phase, one := range all {
		s.truth[phase] = one.delay.Take().Busy.Seconds() / float64(n)
		one.delay.Set(0)
	}
	return s
}

// inserts and selects are rounds of statements: the former write and flush the log, the latter
// read a page.
func (d *filesDatabase) inserts(by delays) sample {
	const n = 60
	return d.round(by, n, func() sample { return insert(d.database, n) })
}

func (d *filesDatabase) selects(by delays) sample {
	const n = 60
	return d.round(by, n, func() sample { return d.read(d.database, n) })
}

func insert(d *database, n int) sample {
	return d.during("insert", n, func() {
		for range n {
			d.do(d.client, "insert into target values (1)")
			time.Sleep(pause)
		}
	})
}

// table is one of one row a page: its file, its pages, and the last one that was read.
type table struct {
	file        string
	pages, page int
}

// fill makes such a table, and an empty one.
func fill(d *database) table {
	t := table{pages: 5_003}
	for _, s := range []string{
		"create table target (i int)",
		"create table pages (i int, filler text)",
		"alter table pages alter filler set storage plain",
		fmt.Sprintf("insert into pages select i, repeat('x', 5000) from generate_series(1, %d) i", t.pages),
		"vacuum (freeze) pages", "checkpoint",
	} {
		d.do(d.client, s)
	}
	d.t.Check(d.client.QueryRow(context.Background(), "select pg_relation_filepath('pages')").Scan(&t.file))
	return t
}

// read reads n pages, far apart, so that nothing reads ahead and the server has none of them.
func (t *table) read(d *database, n int) sample {
	return d.during("select", n, func() {
		for range n {
			t.page = (t.page + 97) % t.pages
			d.do(d.client, fmt.Sprintf("select i from pages where ctid = '(%d,1)'", t.page))
			time.Sleep(pause)
		}
	})
}

// Files that hold back flushes, writes and reads, one after the other, then two of them.
func databaseFiles(t *rig.Scope, o options) {
	d := startFilesDatabase(t, o, "accuracy-files")
	for _, delay := range o.sizes {
		for _, c := range []struct {
			phase, what string
			by          delays
			round       func(delays) sample
		}{
			{"sync", "flushes of files are held back by %v", delays{sync: delay}, d.inserts},
			{"write", "writes to files are held back by %v", delays{write: delay}, d.inserts},
			{"read", "reads of files are held back by %v", delays{read: delay}, d.selects},
		} {
			r := compare(o.turns, func(on bool) sample {
				if on {
					return c.round(c.by)
				}
				return c.round(delays{})
			})
			r.row(t, o.out, databaseSection, fmt.Sprintf(c.what, delay), c.phase, without(phases, c.phase, "client")...)
		}
	}
	both := delays{sync: 8 * time.Millisecond, write: 2 * time.Millisecond}
	r := compare(o.turns, func(on bool) sample {
		if on {
			return d.inserts(both)
		}
		return d.inserts(delays{})
	})
	for _, phase := range []string{"sync", "write"} {
		r.row(t, o.out, databaseSection, "flushes by 8 ms and writes by 2 ms together: "+phase, phase, without(phases, phase, "client")...)
	}
}

func without(list []string, but ...string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(but, s) })
}

// diskDatabase is a server on a disk that holds back, whose block device blockio measures.
type diskDatabase struct {
	*database
	disk    *rig.SlowDisk
	blockio string
	table
}

func startDiskDatabase(t *rig.Scope, o options, name string) *diskDatabase {
	t.Check(rig.OwnMounts())
	dir := tempDir(t)
	disk, err := rig.NewSlowDisk(t, dir, 2<<30)
	t.Check(err)
	t.Check(os.Chmod(dir, 0o755))
	inner := dataFolder(t, dir, disk.Device)
	url, _ := rig.StartBlockio(t)
	_, err = agentproc.Scrape(context.Background(), url)
	t.Check(err)
	d := &diskDatabase{database: startDatabase(t, o, name, inner), disk: disk, blockio: url}
	d.table = fill(d.database)
	punctual(t)
	return d
}

// round makes n statements, and has what blockio and the phase rose by and what was held back.
func (d *diskDatabase) round(n int, op string, delay *rig.Delay, by time.Duration, f func() sample) sample {
	delay.Set(by)
	delay.Take()
	_, before := blockio(d.t, d.blockio, "total", d.disk.Device, op)
	s := f()
	held := delay.Take()
	delay.Set(0)
	_, after := blockio(d.t, d.blockio, "total", d.disk.Device, op)
	s.truth["block device"] = held.Sum.Seconds() / float64(n)
	s.reading["block device"] = (after - before) / float64(n)
	return s
}

const deviceSection = "Accuracy: block device under a PostgreSQL server, and the phase of the statement above it"

// A disk that holds back, under a file system: what is read of the block device, and of the
// phase of the statements above it.
func databaseDisk(t *rig.Scope, o options) {
	d := startDiskDatabase(t, o, "accuracy-disk")
	const n = 60
	for _, delay := range o.sizes {
		r := compare(o.turns, func(on bool) sample {
			return d.round(n, "write", d.disk.Writes, only(on, delay), func() sample { return insert(d.database, n) })
		})
		r.row(t, o.out, deviceSection, fmt.Sprintf("disk holds writes back by %v", delay), "block device", "sync", "write")
		r = compare(o.turns, func(on bool) sample {
			t.Check(rig.DropCache(filepath.Join(d.Data, d.file)))
			return d.round(n, "read", d.disk.Reads, only(on, delay), func() sample { return d.read(d.database, n) })
		})
		r.row(t, o.out, deviceSection, fmt.Sprintf("cold cache, disk holds reads back by %v", delay), "block device", "read")
	}
}

// punctual raises this program, which holds things back, above other load. What it started
// before stays as it is.
func punctual(t *rig.Scope) {
	t.Check(rig.ScheduleTest(t, rig.Punctual))
}

func tempDir(t *rig.Scope) string {
	dir, err := os.MkdirTemp("/var/tmp", "plumbline-accuracy-")
	t.Check(err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// locked makes n statements, each of which has to wait until another session has held a lock
// for a while. The truth is how long the client waits for an answer, without what the server's
// process waited for a CPU by the kernel's account and what a slow file system held.
func (d *database) locked(n int, statement, command string, hold time.Duration, held func() time.Duration) sample {
	const release = "do $$ begin perform pg_advisory_unlock_all(); end $$"
	pid := d.backend(d.client)
	var wait time.Duration
	var queued float64
	s := d.during(command, n, func() {
		for range n {
			if hold > 0 {
				d.do(d.control, "do $$ begin perform pg_advisory_lock(1); end $$")
			}
			before, err := schedstat(pid)
			d.t.Check(err)
			done := make(chan error, 1)
			began := time.Now()
			go func() {
				_, err := d.client.PgConn().Exec(context.Background(), statement).ReadAll()
				wait += time.Since(began)
				done <- err
			}()
			if hold > 0 {
				time.Sleep(hold)
				d.do(d.control, release)
			}
			d.t.Check(<-done)
			after, err := schedstat(pid)
			d.t.Check(err)
			queued += after.waiting - before.waiting
			time.Sleep(pause)
			d.do(d.client, release)
		}
	})
	s.truth["wait"] = (wait.Seconds() - queued - held().Seconds()) / float64(n)
	return s
}

// backend is the process of a connection.
func (d *database) backend(c *pgx.Conn) (pid int) {
	d.t.Check(c.QueryRow(context.Background(), "select pg_backend_pid()").Scan(&pid))
	return pid
}

// Another session holds a lock that a statement needs.
func databaseLock(t *rig.Scope, o options) {
	d := startDatabase(t, o, "accuracy-lock", "")
	punctual(t)
	for _, hold := range o.sizes {
		r := compare(o.turns, func(on bool) sample {
			return d.locked(60, "select pg_advisory_lock(1)", "select", only(on, hold), func() time.Duration { return 0 })
		})
		r.row(t, o.out, databaseSection, fmt.Sprintf("another session holds a lock for %v", hold), "wait", without(phases, "wait", "client")...)
	}
}

// A lock and slow flushes in one statement.
func databaseBoth(t *rig.Scope, o options) {
	d := startFilesDatabase(t, o, "accuracy-both")
	const hold, delay, n = 8 * time.Millisecond, 2 * time.Millisecond, 60
	r := compare(o.turns, func(on bool) sample {
		d.files.Syncs.Set(only(on, delay))
		d.files.Syncs.Take()
		var held time.Duration
		s := d.locked(n, "insert into target select 1 from (select pg_advisory_lock(1)) l", "insert", only(on, hold), func() time.Duration {
			held = d.files.Syncs.Take().Busy
			return held
		})
		s.truth["sync"] = held.Seconds() / n
		return s
	})
	const what = "lock for 8 ms and flushes by 2 ms together: "
	r.row(t, o.out, databaseSection, what+"lock", "wait", without(phases, "wait", "client")...)
	r.row(t, o.out, databaseSection, what+"flush", "sync", without(phases, "sync", "client")...)
}

// Other processes want the CPU that the server's process has to run on. The truth is the
// kernel's own account of that process's time in the run queue.
func databaseCPU(t *rig.Scope, o options) {
	d := startDatabase(t, o, "accuracy-cpu", "")
	pid := d.backend(d.client)
	var cpu unix.CPUSet
	cpu.Set(runtime.NumCPU() - 1)
	t.Check(unix.SchedSetaffinity(pid, &cpu))
	delayed := func() float64 {
		s, err := schedstat(pid)
		t.Check(err)
		return s.waiting
	}
	const n = 15
	for _, burners := range []int{1, 2, 4} {
		r := compare(o.turns, func(on bool) sample {
			var others []*rig.Process
			for range burners {
				if on {
					others = append(others, rig.StartProcess(t, "/", "taskset", "--cpu-list", fmt.Sprint(runtime.NumCPU()-1), "sh", "-c", "while :; do :; done"))
				}
			}
			before := delayed()
			s := d.during("select", n, func() {
				for range n {
					d.do(d.client, "select count(md5(i::text)) from generate_series(1, 20000) i")
				}
			})
			s.truth["runqueue"] = (delayed() - before) / n
			for _, p := range others {
				p.Kill()
			}
			return s
		})
		r.row(t, o.out, databaseSection, fmt.Sprintf("%d busy processes on the server's CPU", burners), "runqueue", "cpu", "read", "write", "sync", "wait")
	}
}

// scheduled is the kernel's account of a process's time, in seconds.
type scheduled struct{ onCPU, waiting float64 }

func schedstat(pid int) (scheduled, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		return scheduled{}, err
	}
	var s scheduled
	_, err = fmt.Sscan(string(text), &s.onCPU, &s.waiting)
	return scheduled{s.onCPU / 1e9, s.waiting / 1e9}, err
}

// dataFolder mounts a device with ext4 below dir, and returns a folder on it for a server's
// data. Without a journal, whose own writes would come between.
func dataFolder(t *rig.Scope, dir, device string) string {
	at := filepath.Join(dir, "mounted")
	t.Check(os.Mkdir(at, 0o755))
	t.Check(rig.MountExt4(t, device, at, "-O", "^has_journal"))
	inner := filepath.Join(at, "pg")
	t.Check(os.Mkdir(inner, 0o700))
	return inner
}

// The whole path: PostgreSQL on ext4 on a loop device on a Longhorn volume with three
// replicas, one of which is behind a proxy.
func through(t *rig.Scope, o options) {
	v := startReplicated(t, o, true, false)
	dir := tempDir(t)
	t.Check(os.Chmod(dir, 0o755))
	device, err := rig.AttachLoop(t, v.Bridge())
	t.Check(err)
	d := startDatabase(t, o, "accuracy-through", dataFolder(t, dir, device))
	d.do(d.client, "create table target (i int)")
	const n = 60
	for _, delay := range o.sizes {
		r := compare(o.turns, func(on bool) sample {
			v.proxy.Set(only(on, delay))
			v.proxy.Take()
			before := v.settled()
			s := d.during("insert", n, func() {
				for range n {
					d.do(d.client, "insert into target values (1)")
					time.Sleep(pause)
				}
			})
			held := v.proxy.Take().Busy.Seconds() / n
			s.truth["sync"], s.truth["delayed replica's round trip"] = held, held
			by := []string{"volume", v.Name, "address", v.Addresses[far], "op", "write"}
			const request = "plumbline_replica_request_duration_seconds"
			s.reading["delayed replica's round trip"] = (v.settled().Seconds(request, by...) - before.Seconds(request, by...)) / n
			return s
		})
		what := fmt.Sprintf("proxy before one of three replicas of the database's volume holds back by %v: ", delay)
		r.row(t, o.out, throughSection, what+"statement", "sync", "cpu", "runqueue", "read", "write", "wait")
		r.row(t, o.out, throughSection, what+"replica", "delayed replica's round trip")
	}
}

const throughSection = "Accuracy: from a replica's network to a statement's sync"
