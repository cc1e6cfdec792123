package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

func newSupervisor(rate float64) *Supervisor {
	load := metrics.NewSet(prometheus.NewRegistry()).Load(metrics.Labels{Tool: "test"}, metrics.Options{Penalty: time.Second})
	return &Supervisor{Load: load, Log: slog.New(slog.DiscardHandler), Rate: rate}
}

// What falls due in an outage is the rate times its length, however often it is settled.
func TestOutageIsCountedExactly(t *testing.T) {
	s := newSupervisor(7)
	start := time.Now()
	s.downSince, s.why = start, metrics.Down
	for i := 1; i <= 100; i++ {
		s.settle(start.Add(time.Duration(i) * 37 * time.Millisecond))
	}
	const want = 25 // 25.9: the rest is still owed
	if got := s.Load.Tally(); got.Skipped[metrics.Down] != want || got.Offered != want || got.Response.Count() != want {
		t.Errorf("an outage of 3.7 s at 7/s counted %d skipped, %d offered, %d slow; want %d", got.Skipped[metrics.Down], got.Offered, got.Response.Count(), want)
	}
}

// Nothing falls due before the tool first ran, nor while it is up.
func TestNothingOwedWhileUp(t *testing.T) {
	s := newSupervisor(1e6)
	s.settle(time.Now().Add(time.Hour))
	s.Up()
	s.settle(time.Now().Add(time.Hour))
	if n := s.Load.Tally().Offered; n != 0 {
		t.Errorf("%d counted", n)
	}
}

func TestPhases(t *testing.T) {
	s := newSupervisor(0)
	s.Warmup = time.Hour // however late this test gets to check
	s.Up()
	if p := s.Load.Phase(); p != metrics.Warmup {
		t.Errorf("phase %s right after the start", p)
	}
	s.down(metrics.Exited)
	s = newSupervisor(0)
	s.Warmup = 30 * time.Millisecond
	s.Up()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if p := s.Load.Phase(); p != metrics.Steady {
			return fmt.Errorf("phase %s", p)
		}
		return nil
	})
	s.down(metrics.Exited)
	if p := s.Load.Phase(); p != metrics.Stopped {
		t.Errorf("phase %s when the tool is down", p)
	}
	s.down(metrics.ServerDown)
	if p := s.Load.Phase(); p != metrics.Unserved {
		t.Errorf("phase %s when the server is down", p)
	}
}

// Restarts are counted by reason and pauses grow, so a tool that cannot start does not spin.
func TestRunBacksOff(t *testing.T) {
	t.Parallel()
	s := newSupervisor(0)
	ctx, cancel := context.WithCancel(t.Context())
	var at []time.Time
	_ = s.Run(ctx, func(context.Context) Ended {
		if at = append(at, time.Now()); len(at) == 4 {
			cancel()
		}
		return Ended{Reason: metrics.Exited, Err: errors.New("broken")}
	})
	if n := s.Load.Tally().Restarts[metrics.Exited]; n != 3 {
		t.Errorf("%d restarts, want 3", n)
	}
	for i := 1; i < len(at); i++ {
		if pause, least := at[i].Sub(at[i-1]), firstBackoff<<(i-1); pause < least {
			t.Errorf("pause %d was %v, want at least %v", i, pause, least)
		}
	}
}

// A caller that waits for a result gets an error with the reason after a while, if none will come.
func TestGivesUp(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	s := newSupervisor(0)
	s.GiveUp = firstBackoff
	if err := s.Run(t.Context(), func(context.Context) Ended { return Ended{Reason: metrics.Exited, Err: broken} }); !errors.Is(err, broken) {
		t.Errorf("Run: %v", err)
	}
	if err := s.Retry(t.Context(), "it", func(context.Context) error { return broken }); !errors.Is(err, broken) || !strings.Contains(err.Error(), "it failed for 250ms") {
		t.Errorf("Retry: %v", err)
	}
	// Not after the tool has worked.
	ctx, cancel := context.WithCancel(t.Context())
	runs := 0
	if err := s.Run(ctx, func(context.Context) Ended {
		if runs++; runs == 1 {
			s.Up()
		} else if runs == 3 {
			cancel()
		}
		return Ended{Reason: metrics.Exited, Err: broken}
	}); err != nil || runs != 3 {
		t.Errorf("Run ended after %d runs: %v", runs, err)
	}
}

// A context that has ended wins over a time that has come: no work is begun after the end.
func TestSleepAfterTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 100 {
		if Sleep(ctx, -time.Second) {
			t.Fatal("it returns true after the context ended")
		}
	}
}

func TestRetryStopsAtFinal(t *testing.T) {
	s := newSupervisor(0)
	tries := 0
	err := s.Retry(t.Context(), "it", func(context.Context) error {
		if tries++; tries < 2 {
			return &ConnectionError{errors.New("refused")}
		}
		return Final(errors.New("no such program"))
	})
	if err == nil || err.Error() != "no such program" || tries != 2 || s.Load.Tally().Errors[metrics.Connection] != 1 {
		t.Errorf("%v after %d tries, %v", err, tries, s.Load.Tally().Errors)
	}
}

// A server that refuses each try to make the tables, whatever its words, is reported; one whose tries get somewhere is
// not.
func TestRetryThatNeverWorks(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration
		down  bool
	}{{0, true}, {time.Minute, false}} {
		synctest.Test(t, func(t *testing.T) {
			s := newSupervisor(0)
			s.Load.SetPhase(metrics.Init)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				_ = s.Retry(ctx, "making tables", func(ctx context.Context) error {
					Sleep(ctx, c.takes)
					return &pgconn.PgError{Severity: "ERROR", Code: "42501", Message: "permission denied for schema public"}
				})
			}()
			seen := map[metrics.Phase]time.Duration{}
			for began := time.Now(); time.Since(began) < 5*time.Minute; time.Sleep(time.Second) {
				synctest.Wait()
				if p := s.Load.Phase(); seen[p] == 0 {
					seen[p] = time.Since(began) + 1
				}
			}
			if at, down := seen[metrics.Unserved]; down != c.down || down && (at < RefusedFor || at > 2*RefusedFor) {
				t.Errorf("tries that take %v: phases from when on %v", c.takes, seen)
			}
			cancel()
			synctest.Wait()
		})
	}
}

// While a server's address takes no packets, each try waits for it in vain: the server is down in the tries as in the
// pauses. A try that lasts is at work.
func TestRetryThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSupervisor(0)
		s.Load.SetPhase(metrics.Init)
		ended := make(chan error)
		began := time.Now()
		back := began.Add(10 * time.Minute)
		go func() {
			ended <- s.Retry(t.Context(), "making tables", func(ctx context.Context) error {
				if time.Now().Before(back) {
					Sleep(ctx, connectTimeout)
					return &ConnectionError{context.DeadlineExceeded}
				}
				Sleep(ctx, time.Hour)
				return nil
			})
		}()
		for at := time.Duration(0); at < time.Hour; at += time.Second {
			synctest.Wait()
			want := metrics.Unserved
			if at < connectTimeout || at > back.Sub(began)+connectTimeout+lastBackoff+LongTry {
				want = metrics.Init
			} else if at > back.Sub(began) {
				want = s.Load.Phase() // of either
			}
			if got := s.Load.Phase(); got != want {
				t.Fatalf("phase %s after %v, want %s", got, at, want)
			}
			time.Sleep(time.Second)
		}
		if err := <-ended; err != nil || s.Load.Phase() != metrics.Init {
			t.Errorf("phase %s in the end, %v", s.Load.Phase(), err)
		}
	})
}

func TestProcess(t *testing.T) {
	var out, errs []string
	p := Process{Command: []string{"sh", "-c", "echo one; echo $EXTRA; printf half; echo oops >&2; kill -9 $$"}, Env: []string{"EXTRA=two"},
		Stdout: func(l string) { out = append(out, l) }, Stderr: func(l string) { errs = append(errs, l) }}
	err := p.Run(t.Context())
	if KilledBy(err) != syscall.SIGKILL {
		t.Errorf("ended with %v, want killed", err)
	}
	if strings.Join(out, ",") != "one,two" || strings.Join(errs, ",") != "oops" {
		t.Errorf("output %q, %q; half a line of a killed program must not be taken for a line", out, errs)
	}
	t.Setenv("LOADGEN_TEST", "left over")
	out = nil
	p = Process{Command: []string{"sh", "-c", "echo ${LOADGEN_TEST-unset} $EXTRA"}, Env: []string{"EXTRA=two"}, Unset: []string{"LOADGEN_TEST"}, Stdout: func(l string) { out = append(out, l) }}
	if err := p.Run(t.Context()); err != nil || strings.Join(out, ",") != "unset two" {
		t.Errorf("the environment is %q, %v", out, err)
	}
	p.Command = []string{"/nowhere/tool"}
	if err := p.Run(t.Context()); !NotStarted(err) {
		t.Errorf("a missing program gave %v", err)
	}
}

// A tool that does not heed the stop signal is killed after its grace, with its children.
func TestProcessIsKilledAfterGrace(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	p := Process{Command: []string{"sh", "-c", "trap '' TERM; echo ready; while :; do sleep 60; done"}, Stop: syscall.SIGTERM,
		Grace: 50 * time.Millisecond, Stdout: func(string) { cancel() }}
	if err := p.Run(ctx); KilledBy(err) != syscall.SIGKILL {
		t.Errorf("ended with %v, want killed", err)
	}
}

func TestLinesKeepsGoingAfterALongOne(t *testing.T) {
	var got []int
	Lines(strings.NewReader(strings.Repeat("x", 3*maxLine)+"\nshort\n"), func(l string) { got = append(got, len(l)) })
	if fmt.Sprint(got) != fmt.Sprint([]int{maxLine, 5}) {
		t.Errorf("lines of lengths %v", got)
	}
}

func TestSplitPassword(t *testing.T) {
	for _, c := range []struct{ in, rest, password string }{
		{"", "", ""},
		{"shop", "shop", ""},
		{"host=/run user=me", "host='/run' user='me'", ""},
		{`host = h password = 'it\'s a \\secret' dbname=d`, "host='h' dbname='d'", `it's a \secret`},
		{"password=x", "", "x"},
		{"connect_timeout=5\fpassword=hush", "connect_timeout='5'", "hush"},
		{"\vhost=h\r\npassword\f=\vhush\r", "host='h'", "hush"},
		{`host=h password=hush\`, "host='h'", "hush"},
		{"postgres://me:pw%20x@h:5432/d?sslmode=disable", "postgres://me@h:5432/d?sslmode=disable", "pw x"},
		{"postgres://:pw@", "postgres://@", "pw"},
		{"postgresql://me:p%40w@%2Frun%2Fpostgresql/d?port=5433", "postgresql://me@%2Frun%2Fpostgresql/d?port=5433", "p@w"},
		{"postgresql://%2Frun%2Fpostgresql/d", "postgresql://%2Frun%2Fpostgresql/d", ""},
		{"postgresql://me:pw@a:5432,b:5433,[::1]:5434/d?target_session_attrs=any", "postgresql://me@a:5432,b:5433,[::1]:5434/d?target_session_attrs=any", "pw"},
		{"postgresql:///d?host=/run/a,/run/b&password=p%26q&connect_timeout=3", "postgresql:///d?host=/run/a,/run/b&connect_timeout=3", "p&q"},
		{"host=a,b port=1,2 dbname=d password=pw", "host='a,b' port='1,2' dbname='d'", "pw"},
		{"postgresql:///d?password=p&host=h", "postgresql:///d?host=h", "p"},
	} {
		rest, password, err := SplitPassword(c.in)
		if err != nil || rest != c.rest || password != c.password {
			t.Errorf("%q: %q, %q, %v; want %q, %q", c.in, rest, password, err, c.rest, c.password)
		}
	}
	for _, bad := range []string{"host='open password=hush", "=hush", "postgres://u:hush@[bad/x", "a b=hush"} {
		if _, _, err := SplitPassword(bad); err == nil || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: error %v; want one that does not repeat the string", bad, err)
		}
	}
}

// An error names what is wrong with a connection string, and nothing of its password, however that is written.
func TestRefusalHasNoPassword(t *testing.T) {
	for _, c := range []struct{ dsn, want string }{
		{"host=db password = hush sslmode=bogus", "sslmode is invalid"},
		{"host=db password\t=\thush sslmode=bogus", "sslmode is invalid"},
		{`host=db password='it\'s hush' sslmode=bogus`, "sslmode is invalid"},
		{`host=db password=it\ is\ hush sslmode=bogus`, "sslmode is invalid"},
		{"host=db password='hush' port=many", "invalid port"},
		{"host=db password=hush connect_timeout=soon", "connect_timeout"},
		{"host=db password=it hush sslmode=disable", "expected key=value"}, // not quoted
		{"host=db password=it\fhush sslmode=disable", "expected key=value"},
		{"host=db password=it\x00hush sslmode=disable", "in its password must be quoted"},
		{"host=db connect_timeout=soon\fpassword=hush", "connect_timeout"},
		{"host=db password='hush sslmode=disable", "password is not closed"},
		{"postgres://u:hush@db/d?sslmode=bogus", "sslmode is invalid"},
		{"postgres://db/d?password=hush&sslmode=bogus", "sslmode is invalid"},
		{"postgres://u:it/hush@db/d", "invalid port"},
		{"postgres://u:hush@[bad/x", "IPv6 host address"},
	} {
		_, err := PostgresConfig(c.dsn)
		if err == nil || !strings.HasPrefix(err.Error(), "connection string: ") || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%q: error %v; want one of %q without the password", c.dsn, err, c.want)
		}
	}
}

// The kind of an error is its cause's, whether a driver has it or a tool puts it in words.
func TestKind(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, c := range []struct {
		err  error
		want metrics.ErrorKind
	}{
		{&ConnectionError{refused}, metrics.Connection},
		{&ConnectionError{context.DeadlineExceeded}, metrics.Connection},
		{&ConnectionError{&pgconn.PgError{Severity: "FATAL", Code: "28P01"}}, metrics.Authentication},
		{&ConnectionError{&pgconn.PgError{Severity: "FATAL", Code: "28000", Message: "no pg_hba.conf entry"}}, metrics.Authentication},
		{&ConnectionError{&pgconn.PgError{Severity: "FATAL", Code: "57P03"}}, metrics.Connection},
		{&ConnectionError{&pgconn.PgError{Severity: "FATAL", Code: "53100"}}, metrics.Storage},
		{&ConnectionError{errors.Join(refused, pgconn.ErrReadOnlyConnection)}, metrics.ReadOnly},
		{&ConnectionError{ErrReadOnly}, metrics.ReadOnly},
		{&ConnectionError{&mysql.MySQLError{Number: 1045}}, metrics.Authentication},
		{&pgconn.PgError{Code: "42501", Message: `could not open file "base/5/1": Read-only file system`}, metrics.Storage},
		{&pgconn.PgError{Code: "58P01", Message: `could not open file "base/5/1": No such file or directory`}, metrics.Storage},
		{&pgconn.PgError{Code: "58P01", Message: `could not access file "$libdir/x": No such file or directory`}, metrics.Other},
		{&pgconn.PgError{Code: "25006"}, metrics.ReadOnly},
		{&mysql.MySQLError{Number: 1290}, metrics.ReadOnly},
		{&mysql.MySQLError{Number: 3, Message: `Error writing file './x' (Errcode: 28 "No space left on device")`}, metrics.Storage},
		{&mysql.MySQLError{Number: 1064}, metrics.Other},
		{&mysql.MySQLError{Number: 1047, Message: "WSREP has not yet prepared node for application use"}, metrics.Connection},
		{&mysql.MySQLError{Number: 9001, Message: "Max connect timeout reached while reaching hostgroup 10 after 10000ms"}, metrics.Connection},
		{&mysql.MySQLError{Number: 1874, Message: "InnoDB is in read only mode."}, metrics.ReadOnly},
		{&mysql.MySQLError{Number: 3100, Message: "Error on observer while running replication hook 'before_commit'."}, metrics.ReadOnly},
		{&pgconn.PgError{Severity: "ERROR", Code: "54000", Message: `database is not accepting commands that assign new transaction IDs to avoid wraparound data loss in database "shop"`}, metrics.ReadOnly},
		{&pgconn.PgError{Severity: "ERROR", Code: "54000", Message: `index row size 2712 exceeds maximum 2704 for index "i"`}, metrics.Other},
		{ToolError(errors.New("pgbench: exit status 1"), `connection to server on socket "/x" failed: FATAL:  password authentication failed for user "a"`), metrics.Authentication},
		{errors.New("strange"), metrics.Other},
	} {
		if got := Kind(t.Context(), fmt.Errorf("it: %w", c.err)); got != c.want {
			t.Errorf("%v is %s, want %s", c.err, got, c.want)
		}
	}
	for words, want := range map[string]metrics.ErrorKind{
		`connection to server at "h", port 5432 failed: Connection refused`:                                                                             metrics.Connection,
		`connection to server at "h" failed: FATAL:  role "x" does not exist`:                                                                           metrics.Authentication,
		`connection to server at "h" failed: session is read-only`:                                                                                      metrics.ReadOnly,
		`client 0 aborted: ERROR:  cannot execute UPDATE in a read-only transaction`:                                                                    metrics.ReadOnly,
		`ERROR:  could not extend file "base/1": No space left on device`:                                                                               metrics.Storage,
		`Access denied for user 'x'@'localhost'`:                                                                                                        metrics.Authentication,
		`ERROR:  relation "sbtest3" does not exist`:                                                                                                     metrics.Other,
		`unable to connect to MySQL server on host 'h', port 3306, aborting...`:                                                                         metrics.Connection,
		`pid=1, err=5/file:io_u.c:1787, func=io_u error, error=Input/output error`:                                                                      metrics.Storage,
		`ERROR:  could not serialize access due to concurrent update`:                                                                                   metrics.Serialization,
		`mysql_drv_query() returned error 1047 (WSREP has not yet prepared node for application use) for query 'BEGIN'`:                                 metrics.Connection,
		`ERROR:  database is not accepting commands to avoid wraparound data loss in database "shop"`:                                                   metrics.ReadOnly,
		`mysql_drv_query() returned error 1881 (Operation not allowed when innodb_force_recovery > 0.) for query 'UPDATE sbtest1 SET k=k+1 WHERE id=1'`: metrics.ReadOnly,
	} {
		if got := KindOf(words); got != want {
			t.Errorf("%q is %s, want %s", words, got, want)
		}
	}
}

// What falls due while the tool is down by itself is no answer of the server.
func TestToolsOutageIsNotSlow(t *testing.T) {
	for reason, want := range map[metrics.RestartReason]metrics.SkipReason{metrics.ServerDown: metrics.Down, metrics.Killed: metrics.Tool, metrics.Exited: metrics.Tool, metrics.StartFailed: metrics.Tool} {
		s := newSupervisor(10)
		s.Up()
		s.down(reason)
		s.settle(s.downSince.Add(time.Second))
		got := s.Load.Tally()
		slow := got.Response.Above(500 * time.Millisecond)
		if got.Skipped[want] != 10 || got.Offered != 10 || (want == metrics.Down) != (slow == 10) || (want == metrics.Tool) != (got.Response.Count() == 0) {
			t.Errorf("%s: skipped %v of %d, %d slow", reason, got.Skipped, got.Offered, slow)
		}
	}
}

// What a tool refuses is tried once; what it cannot do now is retried.
func TestRefusedIsNotTriedAgain(t *testing.T) {
	runs := 0
	err := newSupervisor(0).Run(t.Context(), func(context.Context) Ended {
		runs++
		return End("tool", errors.New("exit status 1"), "no such engine", false, true)
	})
	if err == nil || !strings.Contains(err.Error(), "no such engine") || runs != 1 {
		t.Errorf("%d runs, %v", runs, err)
	}
	if e := End("tool", errors.New("exit status 1"), "no server", true, true); e.Refused {
		t.Error("a server that is down refuses nothing")
	}
}

// A tool that works and never gets through its warm-up has no result; a caller that waits for it gets an error.
func TestNeverSteady(t *testing.T) {
	t.Parallel()
	s := newSupervisor(0)
	s.Warmup, s.GiveUp = 5*time.Second, firstBackoff
	err := s.Run(t.Context(), func(context.Context) Ended {
		s.Up()
		return Ended{Reason: metrics.Killed, Err: errors.New("segmentation fault")}
	})
	if err == nil || !strings.Contains(err.Error(), "segmentation fault") {
		t.Errorf("it gave %v", err)
	}
}

// What lib/pq takes is one host, with nothing left to find out.
func TestPlain(t *testing.T) {
	for _, c := range []struct {
		dsn    string
		secure bool
		want   string
	}{
		{"postgresql://me:it%27s@%2Frun%2Fpg/shop?connect_timeout=3", false, `application_name='loadgen' connect_timeout='3' dbname='shop' host='/run/pg' password='it\'s' port='5432' sslmode='disable' user='me'`},
		{"host=h port=6432 user=me dbname=shop sslmode=prefer", true, `application_name='loadgen' dbname='shop' host='h' port='6432' sslmode='require' user='me'`},
		{"host=h user=me dbname=shop keepalives=1 search_path=s", false, `application_name='loadgen' dbname='shop' host='h' port='5432' search_path='s' sslmode='disable' user='me'`},
	} {
		config, err := PostgresConfig(c.dsn)
		if err != nil {
			t.Fatal(err)
		}
		if got := (&Reached{config: config, secure: c.secure}).Plain(c.dsn); got != c.want {
			t.Errorf("%q became\n%s, want\n%s", c.dsn, got, c.want)
		}
	}
	config, err := PostgresConfig("host=db.example hostaddr=192.0.2.7 user=me")
	if err != nil {
		t.Fatal(err)
	}
	if got := (&Reached{config: config, address: "192.0.2.7"}).Plain(""); !strings.Contains(got, " host='db.example' hostaddr='192.0.2.7' ") {
		t.Errorf("the address is not in %s", got)
	}
}

// hostaddr is where a host is, or the host itself.
func TestHostAddress(t *testing.T) {
	config, err := PostgresConfig("host=db.example hostaddr=192.0.2.7 user=u dbname=d")
	if err != nil {
		t.Fatal(err)
	}
	if at, err := config.LookupFunc(t.Context(), "db.example"); err != nil || len(at) != 1 || at[0] != "192.0.2.7:5432" || config.Host != "db.example" {
		t.Errorf("%s is at %v, %v", config.Host, at, err)
	}
	for _, dsn := range []string{"hostaddr=192.0.2.7 user=u dbname=d", "postgresql://u@/d?hostaddr=192.0.2.7"} {
		if config, err = PostgresConfig(dsn); err != nil || config.Host != "192.0.2.7" || len(config.RuntimeParams) != 1 {
			t.Errorf("%s: %+v, %v", dsn, config, err)
		}
	}
	if _, err := PostgresConfig("host=a,b hostaddr=192.0.2.7 user=u"); err == nil || !strings.Contains(err.Error(), "hostaddr, or PGHOSTADDR, has 1 addresses; want one for each host, of which there are 2") {
		t.Errorf("%v", err)
	}
}

// The address may come from the environment or a service, and goes before a socket; a string's goes before a service's,
// and that before the environment's, as with libpq. A host of either is the certificate's name.
func TestHostAddressOfTheEnvironment(t *testing.T) {
	services := filepath.Join(t.TempDir(), "services")
	if err := os.WriteFile(services, []byte("[address]\nhostaddr=192.0.2.8\n[both]\nhost=db.example\nhostaddr=192.0.2.8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ dsn, variable, value, host, address string }{
		{"user=u dbname=d", "PGHOSTADDR", "192.0.2.7", "192.0.2.7", ""},
		{"shop", "PGHOSTADDR", "192.0.2.7", "192.0.2.7", ""},
		{"host=db.example user=u", "PGHOSTADDR", "192.0.2.7", "db.example", "192.0.2.7:5432"},
		{"host=db.example hostaddr=192.0.2.9 user=u", "PGHOSTADDR", "192.0.2.7", "db.example", "192.0.2.9:5432"},
		{"host=/run/postgresql user=u", "PGHOSTADDR", "192.0.2.7", "192.0.2.7", ""},
		{"postgresql://u@/d?host=/run/postgresql", "PGHOSTADDR", "192.0.2.7", "192.0.2.7", ""},
		{"service=address", "", "", "192.0.2.8", ""},
		{"service=address", "PGHOSTADDR", "192.0.2.7", "192.0.2.8", ""},
		{"service=both", "", "", "db.example", "192.0.2.8:5432"},
		{"user=u", "PGSERVICE", "both", "db.example", "192.0.2.8:5432"},
		{"postgresql:///d?service=both", "", "", "db.example", "192.0.2.8:5432"},
	} {
		t.Run(c.dsn+" "+c.variable, func(t *testing.T) {
			for _, variable := range []string{"PGHOST", "PGHOSTADDR", "PGSERVICE", "PGPORT"} {
				t.Setenv(variable, "")
			}
			t.Setenv("PGSERVICEFILE", services)
			if c.variable != "" {
				t.Setenv(c.variable, c.value)
			}
			config, err := PostgresConfig(c.dsn)
			if err != nil {
				t.Fatal(err)
			}
			if config.Host != c.host || config.RuntimeParams["hostaddr"] != "" {
				t.Errorf("the host is %s, want %s; %v are for the server", config.Host, c.host, config.RuntimeParams)
			}
			if c.address == "" {
				return
			}
			if at, err := config.LookupFunc(t.Context(), c.host); err != nil || len(at) != 1 || at[0] != c.address {
				t.Errorf("%s is at %v, %v; want %s", c.host, at, err, c.address)
			}
		})
	}
}

// Hosts of one name, for one certificate, each have an address of their own.
func TestHostAddressesOfOneName(t *testing.T) {
	for dsn, want := range map[string][]string{
		"host=db,db hostaddr=192.0.2.1,192.0.2.2 user=u sslmode=disable":                     {"192.0.2.1:5432", "192.0.2.2:5432"},
		"host=db,db hostaddr=192.0.2.1,192.0.2.2 port=5433,5434 user=u":                      {"192.0.2.1:5433", "192.0.2.2:5434"},
		"postgresql://u@db,db/d?hostaddr=192.0.2.1,2001:db8::2&sslmode=verify-full":          {"192.0.2.1:5432", "[2001:db8::2]:5432"},
		"host=db,other,db hostaddr=192.0.2.1,192.0.2.9,192.0.2.2 user=u sslmode=verify-full": {"192.0.2.1:5432", "192.0.2.2:5432"},
	} {
		config, err := PostgresConfig(dsn)
		if err != nil {
			t.Errorf("%s: %v", dsn, err)
			continue
		}
		if at, err := config.LookupFunc(t.Context(), "db"); err != nil || !slices.Equal(at, want) {
			t.Errorf("%s: db is at %v, %v; want %v", dsn, at, err, want)
		}
		if tls := config.TLSConfig; strings.Contains(dsn, "verify-full") && (tls == nil || tls.ServerName != "db") {
			t.Errorf("%s: the certificate is not to be db's", dsn)
		}
		if strings.Contains(dsn, "other") {
			if at, err := config.LookupFunc(t.Context(), "other"); err != nil || !slices.Equal(at, []string{"192.0.2.9:5432"}) {
				t.Errorf("%s: other is at %v, %v", dsn, at, err)
			}
		}
	}
	// Both are tried, each once with TLS and once without: nobody listens.
	dial := &net.Dialer{}
	config, err := PostgresConfig("host=db,db hostaddr=127.0.0.1,127.0.0.2 port=1 user=u connect_timeout=5")
	if err != nil {
		t.Fatal(err)
	}
	var tried []string
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		tried = append(tried, address)
		return dial.DialContext(ctx, network, address)
	}
	if _, err := pgx.ConnectConfig(t.Context(), config); err == nil || strings.Join(tried, " ") != "127.0.0.1:1 127.0.0.2:1 127.0.0.1:1 127.0.0.2:1" {
		t.Errorf("%v were tried: %v", tried, err)
	}
}

// No secret of a connection string gets among a tool's arguments.
func TestSecretsAreRefused(t *testing.T) {
	for dsn, key := range map[string]string{
		"host=db sslmode=verify-full sslcert=/c.pem sslkey=/k.pem sslpassword=hunter2 dbname=shop password=x": "sslpassword",
		"postgresql://u:x@db/shop?sslmode=verify-full&sslpass%77ord=hunter2":                                  "sslpassword",
		"host=db oauth_client_id=c oauth_client_secret = 'hunter2'":                                           "oauth_client_secret",
		"host=db scram_client_key=hunter2":                                                                    "scram_client_key",
	} {
		if rest, _, err := SplitPassword(dsn); err == nil || rest != "" || !strings.Contains(err.Error(), key) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %q, %v", dsn, rest, err)
		}
	}
	// Nor is it sent to the server as a setting.
	config, err := PostgresConfig("host=db user=u oauth_client_id=c oauth_client_secret=hunter2")
	if err != nil || len(config.RuntimeParams) != 1 {
		t.Errorf("%v, %v", config, err)
	}
}

// Taking the password out must change nothing else of what a server receives.
func FuzzSplitPassword(f *testing.F) {
	f.Add(`host=h user='a b' password='p\'q'`)
	f.Add("postgres://u:p@h/d?application_name=x")
	f.Fuzz(func(t *testing.T, dsn string) {
		rest, password, err := SplitPassword(dsn)
		if err != nil || rest == "" {
			return
		}
		want, err := pgx.ParseConfig(dsn)
		if err != nil {
			return
		}
		got, err := pgx.ParseConfig(rest)
		if err != nil {
			t.Fatalf("%q became %q, which is refused: %v", dsn, rest, err)
		}
		if got.Host != want.Host || got.User != want.User || got.Database != want.Database || got.Port != want.Port {
			t.Errorf("%q became %q", dsn, rest)
		}
		if password != "" && want.Password != password {
			t.Errorf("%q: password %q, want %q", dsn, password, want.Password)
		}
	})
}
