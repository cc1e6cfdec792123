package query

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/certificate"
	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/testkit"
)

// redisGroups are the groups of the commands that the tests make.
var redisGroups = map[string]string{
	"get": "read", "lrange": "read", "strlen": "read", "llen": "read",
	"set": "write", "incr": "write", "rpush": "write", "lpush": "write", "mset": "write", "del": "write", "flushdb": "write",
	"blpop": "blocking", "multi": "transaction", "exec": "transaction", "eval": "scripting",
	"subscribe": "pubsub", "publish": "pubsub", "unsubscribe": "pubsub",
	"ping": "connection", "select": "connection", "hello": "connection", "client": "connection", "info": "admin", "config": "admin", "psync": "admin", "debug": "admin",
}

// calledDuring is during, beside the server's own report of that time.
func calledDuring(t *testing.T, q *query, name string, r *servertest.Redis, f func()) (got querytest.Seen, want map[string]uint64) {
	t.Helper()
	c := r.Connect(t, "tcp")
	defer c.Close()
	calls := func() map[string]uint64 {
		all, err := c.Calls()
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	var first map[string]uint64
	// Both of these calls are in one of the two: the first in what the server reports, the last in what the agent does.
	querytest.During(t, q, name, 1, func() { first = calls() })
	before := querytest.AtRest(t, q, name)
	f()
	want = map[string]uint64{}
	for command, n := range calls() {
		if n -= first[command]; n == 0 {
			continue
		}
		group := redisGroups[command]
		if group == "" {
			t.Errorf("the test made the command %s, whose group it does not know", command)
		}
		want[group] += n
	}
	return querytest.Since(t, q, name, before, querytest.SumOf(want)), want
}

// sendRedis sends text to a server of Redis and waits for so many answers.
func sendRedis(t *testing.T, c *servertest.RedisConn, text string, answers int) {
	t.Helper()
	if _, err := c.Send(text, answers); err != nil {
		t.Fatal(err)
	}
}

func TestQueryCountsRedis(t *testing.T) {
	r := servertest.StartRedis(t, nil)
	testQueryCountsRedis(t, r, "redis:"+filepath.Join(r.Dir, "data"))
}

func TestQueryCountsValkey(t *testing.T) {
	r := servertest.StartValkey(t, nil)
	testQueryCountsRedis(t, r, "redis:"+filepath.Join(r.Dir, "root", "run", "data")+"-")
}

// Every command is counted once, in its group, however it comes: the server's own count is the truth.
func testQueryCountsRedis(t *testing.T, r *servertest.Redis, begins string) {
	q := startQuery(t)
	name := defaultName(t, q, r.PID)
	if !strings.HasPrefix(name, begins) {
		t.Errorf("it is called %q, want %q", name, begins)
	}
	c, local := r.Connect(t, "tcp"), r.Connect(t, "unix")
	large := strings.Repeat("*1\r\n$4\r\nPING\r\n", 1<<20/14)
	for _, x := range []struct {
		name string
		do   func()
	}{
		{"simple", func() { r.Bench(t, "-t", "set,get,incr", "-n", "5000", "-c", "1") }},
		{"pipelined 100 at once", func() { r.Bench(t, "-t", "set,get,lpush,mset", "-n", "50000", "-c", "10", "-P", "100") }},
		{"50 connections", func() { r.Bench(t, "-t", "set,get", "-n", "20000", "-c", "50") }},
		{"churn", func() { r.Bench(t, "-t", "ping_inline,set", "-n", "2000", "-c", "10", "-k", "0") }},
		{"large values that look like commands", func() {
			for range 10 {
				sendRedis(t, c, servertest.RESP("SET", "large", large)+servertest.RESP("GET", "large"), 2)
			}
		}},
		{"many parts", func() {
			words := []string{"RPUSH", "list"}
			for i := range 20000 {
				words = append(words, strconv.Itoa(i))
			}
			sendRedis(t, c, servertest.RESP(words...)+servertest.RESP("LRANGE", "list", "0", "-1"), 2)
		}},
		{"split at every byte", func() {
			for _, b := range []byte(servertest.RESP("SET", "k", "a value") + servertest.RESP("STRLEN", "k") + "get k\r\n") {
				if _, err := c.Write([]byte{b}); err != nil {
					t.Fatal(err)
				}
			}
			for range 3 {
				if _, err := c.Answer(); err != nil {
					t.Fatal(err)
				}
			}
		}},
		{"inline", func() { sendRedis(t, c, "PING\r\n\r\n  set k v  \r\nget k\nping\n", 4) }},
		{"empty arrays", func() { sendRedis(t, c, "*0\r\n*-1\r\n"+servertest.RESP("GET", "k"), 1) }},
		{"local socket", func() { sendRedis(t, local, strings.Repeat(servertest.RESP("get", "k"), 1000), 1000) }},
		{"transactions", func() {
			for range 50 {
				sendRedis(t, c, servertest.RESP("MULTI")+servertest.RESP("SET", "k", "1")+servertest.RESP("INCR", "k")+servertest.RESP("EXEC"), 4)
			}
		}},
		{"a script", func() { sendRedis(t, c, servertest.RESP("EVAL", "return 1", "0"), 1) }},
		{"messages", func() {
			s := r.Connect(t, "tcp")
			defer s.Close()
			sendRedis(t, s, servertest.RESP("SUBSCRIBE", "channel"), 1)
			for range 100 {
				sendRedis(t, c, servertest.RESP("PUBLISH", "channel", "message"), 1)
			}
			for range 100 { // the messages
				if _, err := s.Answer(); err != nil {
					t.Fatal(err)
				}
			}
			sendRedis(t, s, servertest.RESP("UNSUBSCRIBE", "channel"), 1)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			got, want := calledDuring(t, q, name, r, x.do)
			t.Logf("%v", want)
			querytest.WantCounts(t, got, want)
			querytest.WantSum(t, got)
		})
	}
}

// While a command waits for something else than the server, it is no work, and when its answer comes it is counted.
func TestQueryRedisBlocked(t *testing.T) {
	r := servertest.StartRedis(t, nil)
	q := startQuery(t)
	name := defaultName(t, q, r.PID)
	const blocked = 5
	var waiting []*servertest.RedisConn
	for range blocked {
		waiting = append(waiting, r.Connect(t, "tcp"))
	}
	c := r.Connect(t, "tcp")
	const pause = 2 * time.Second
	began := time.Now()
	got, want := calledDuring(t, q, name, r, func() {
		for _, w := range waiting {
			sendRedis(t, w, servertest.RESP("BLPOP", "queue", "0"), 0)
		}
		wantBlocked(t, c, blocked)
		wantGauge(t, q, name, "plumbline_query_in_flight wait", func(n float64) bool { return n == 0 })
		for end := time.Now().Add(pause); time.Now().Before(end); {
			sendRedis(t, c, servertest.RESP("GET", "k"), 1)
		}
		for range blocked {
			sendRedis(t, c, servertest.RESP("RPUSH", "queue", "x"), 1)
		}
		for _, w := range waiting {
			if _, err := w.Answer(); err != nil {
				t.Fatal(err)
			}
		}
	})
	took := time.Since(began)
	querytest.WantCounts(t, got, want)
	querytest.WantSum(t, got)
	// The server serves one after the other. Their waits, which go on at the same time, would be more than all of it.
	if got.Sums["blocking"] > took.Seconds() {
		t.Errorf("%d commands that waited at the same time took %.3f s of work in %v", blocked, got.Sums["blocking"], took)
	}
}

func TestQueryRedisPushes(t *testing.T) { testQueryRedisPushes(t, servertest.StartRedis(t, nil)) }

func TestQueryValkeyPushes(t *testing.T) { testQueryRedisPushes(t, servertest.StartValkey(t, nil)) }

// Push messages answer no command: what waits counts when its own answer comes, and where they come between answers,
// each command counts once.
func testQueryRedisPushes(t *testing.T, r *servertest.Redis) {
	q := startQuery(t)
	name := defaultName(t, q, r.PID)
	c, tracks := r.Connect(t, "tcp"), r.Connect(t, "tcp")
	const keys = 20
	get := func(i int) string { return servertest.RESP("GET", fmt.Sprint("k", i)) }
	set := func(i int) string { return servertest.RESP("SET", fmt.Sprint("k", i), "x") }
	// receive takes so many answers and push messages, in whatever order.
	receive := func(answers, pushes int) {
		t.Helper()
		got := 0
		for range answers + pushes {
			text, err := tracks.Answer()
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(text, "invalidate\n") || strings.HasPrefix(text, "message\n") {
				got++
			}
		}
		if got != pushes {
			t.Fatalf("%d push messages among %d, want %d", got, answers+pushes, pushes)
		}
	}
	got, want := calledDuring(t, q, name, r, func() {
		sendRedis(t, tracks, servertest.RESP("HELLO", "3")+servertest.RESP("CLIENT", "TRACKING", "ON")+servertest.RESP("SUBSCRIBE", "channel"), 3)
		for range 50 { // between answers
			sendRedis(t, tracks, get(0), 1)
			sendRedis(t, tracks, strings.Repeat(get(1), 50), 0)
			sendRedis(t, c, set(0), 1)
			receive(50, 1)
		}
		for _, x := range []struct {
			text         string
			answers      int
			pushes, more int // before the answer, and with it
		}{
			{set(0) + set(1) + servertest.RESP("PUBLISH", "channel", strings.Repeat("x", 10000)), 3, 3, 1},
			{servertest.RESP("FLUSHDB"), 1, 1, 0},
		} {
			for i := range keys {
				sendRedis(t, tracks, get(i), 1)
			}
			sendRedis(t, tracks, servertest.RESP("LLEN", "queue"), 1)
			sendRedis(t, tracks, servertest.RESP("BLPOP", "queue", "0")+get(0), 0)
			wantBlocked(t, c, 1)
			before := querytest.AtRest(t, q, name)
			sendRedis(t, c, x.text, x.answers)
			receive(0, x.pushes)
			sendRedis(t, c, servertest.RESP("PING"), 1) // the server is through with its sends before
			if got := querytest.Collect(t, q, name).Minus(before).Counts; got["blocking"]+got["read"] != 0 {
				t.Errorf("before their answers came, %v were counted", got)
			}
			sendRedis(t, c, servertest.RESP("RPUSH", "queue", "x"), 1)
			receive(2, x.more)
		}
	})
	querytest.WantCounts(t, got, want)
	querytest.WantSum(t, got)
}

// wantBlocked waits until so many clients of the server wait for something.
func wantBlocked(t *testing.T, c *servertest.RedisConn, clients int) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		text, err := c.Do("INFO", "clients")
		if err == nil && !strings.Contains(text, fmt.Sprintf("blocked_clients:%d\r\n", clients)) {
			err = fmt.Errorf("they are not blocked yet: %s", text)
		}
		return err
	})
}

// Encrypted connections are not read: their answers are lost, and counted as that, and what comes by others beside them
// counts.
func TestQueryRedisTLS(t *testing.T) {
	port, err := freeport.Find()
	if err != nil {
		t.Fatal(err)
	}
	r := servertest.StartRedis(t, func(data string) { certified(t, data) }, "--tls-port", strconv.Itoa(port), "--tls-auth-clients", "no",
		"--tls-cert-file", certificate.File, "--tls-key-file", certificate.Key, "--tls-ca-cert-file", certificate.File)
	q := startQuery(t)
	name := defaultName(t, q, r.PID)
	c := r.Connect(t, "tcp")
	encrypted, err := tls.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer encrypted.Close()
	const commands = 100
	got := querytest.During(t, q, name, commands, func() {
		for range commands {
			if _, err := io.WriteString(encrypted, servertest.RESP("PING")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(encrypted, make([]byte, len("+PONG\r\n"))); err != nil {
				t.Fatal(err)
			}
			sendRedis(t, c, servertest.RESP("GET", "k"), 1)
		}
	})
	want, err := c.Calls()
	if err != nil {
		t.Fatal(err)
	}
	if got.Total() != want["get"] || got.Counts["read"] != want["get"] || got.Lost["encrypted"] != float64(want["ping"]) || len(got.Lost) != 1 {
		t.Errorf("counted %v, lost %v; the server ran %v", got.Counts, got.Lost, want)
	}
	querytest.WantSum(t, got)
}

// Of commands that one turn of the server's serves, each has its own time, also while it is under way: what was
// reported of a command stays reported.
func TestQueryRedisCollectedInATurn(t *testing.T) {
	// However long the script takes here, the server serves nobody meanwhile.
	r := servertest.StartRedis(t, nil, "--enable-debug-command", "yes", "--lua-time-limit", "0")
	q := startQuery(t)
	name := defaultName(t, q, r.PID)
	connect := func() *servertest.RedisConn { return r.Connect(t, "tcp") }
	holds, first, blocks, second, mixed := connect(), connect(), connect(), connect(), connect()
	sleep := servertest.RESP("DEBUG", "SLEEP", "0.4")
	got, want := calledDuring(t, q, name, r, func() {
		sendRedis(t, holds, sleep, 0)
		// The server sleeps meanwhile, and then has all of these at once.
		sendRedis(t, first, servertest.RESP("EVAL", "local n = 0 for i = 1, 2e7 do n = n + i end return n", "0"), 0)
		sendRedis(t, blocks, servertest.RESP("BLPOP", "queue", "0"), 0)
		sendRedis(t, second, sleep, 0)
		sendRedis(t, mixed, servertest.RESP("GET", "k")+sleep+servertest.RESP("INCR", "n"), 0)
		answered := make(chan error, 1)
		go func() {
			_, err := holds.Answer()
			for _, c := range []struct {
				of *servertest.RedisConn
				n  int
			}{{first, 1}, {second, 1}, {mixed, 3}} {
				for range c.n {
					_, one := c.of.Answer()
					err = errors.Join(err, one)
				}
			}
			answered <- err
		}()
		for reads := 0; ; reads++ {
			select {
			case err := <-answered:
				if err != nil || reads < 10 {
					t.Errorf("%d reads: %v", reads, err)
				}
				sendRedis(t, holds, servertest.RESP("RPUSH", "queue", "x"), 1)
				if _, err := blocks.Answer(); err != nil {
					t.Fatal(err)
				}
				return
			default:
				querytest.Collect(t, q, name)
			}
		}
	})
	querytest.WantCounts(t, got, want)
	querytest.WantSum(t, got)
}

// What no client sends ends nothing but its own connection, and commands whose client is gone before it is answered are
// in no count.
func TestQueryRedisHostile(t *testing.T) {
	r := servertest.StartRedis(t, nil)
	q := startQuery(t)
	name := defaultName(t, q, r.PID)
	c := r.Connect(t, "tcp")
	get := servertest.RESP("GET", "k")
	for _, x := range []struct {
		name, text string
		lost       float64
		refused    bool
	}{
		{"an endless array", "*1000000000\r\n$3\r\nSET\r\n$1\r\nk\r\n", 0, false},
		{"an array beyond bounds", "*99999999999\r\n", 1, true},
		{"a string of less than nothing", "*1\r\n$-5\r\n" + get, 1, true},
		{"a string beyond bounds", "*2\r\n$3\r\nGET\r\n$4294967290\r\n" + get, 1, true},
		{"a number that never ends", "*2\r\n$3\r\nGET\r\n$" + strings.Repeat("9", 100) + "\r\n", 1, true},
		{"no string", "*2\r\n$3\r\nGET\r\n:1\r\n" + get, 1, true},
		{"a string without its end", "*3\r\n$3\r\nSET\r\n$1000000\r\nx", 0, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			before := querytest.AtRest(t, q, name)
			h := r.Connect(t, "tcp")
			if _, err := h.Write([]byte(x.text)); err != nil {
				t.Fatal(err)
			}
			if x.refused {
				if _, err := h.Answer(); err == nil || !strings.Contains(err.Error(), "Protocol error") {
					t.Fatalf("the server's answer: %v", err)
				}
			}
			h.Close()
			sendRedis(t, c, strings.Repeat(get, 10), 10)
			got := querytest.Since(t, q, name, before, 10)
			if got.Counts["read"] != 10 || got.Total() != 10 || got.Lost["protocol"] != x.lost {
				t.Errorf("counted %v, lost %v; want 10 and %v", got.Counts, got.Lost, x.lost)
			}
		})
	}
	t.Run("gone before the answer", func(t *testing.T) {
		before := querytest.AtRest(t, q, name)
		for range 100 {
			h := r.Connect(t, "unix")
			if _, err := h.Write([]byte(strings.Repeat(servertest.RESP("SET", "k", "v"), 100))); err != nil {
				t.Fatal(err)
			}
			h.Close()
		}
		sendRedis(t, c, get, 1)
		got := querytest.Since(t, q, name, before, 1)
		if got.Counts["write"] > 10000 || got.Counts["read"] != 1 || len(got.Lost) != 0 {
			t.Errorf("counted %v, lost %v", got.Counts, got.Lost)
		}
		got, want := calledDuring(t, q, name, r, func() { sendRedis(t, c, strings.Repeat(get, 1000), 1000) })
		querytest.WantCounts(t, got, want)
	})
}

// With appendfsync always a write waits for the log's sync, which is where the time goes if the disk is slow; a read
// does not.
func TestQueryRedisSync(t *testing.T) {
	r := servertest.StartRedis(t, func(data string) {
		passOn(t, data, data+"-slow", func(r *fs.LoopbackRoot) fs.InodeEmbedder { return &slowNode{fs.LoopbackNode{RootData: r}, false} })
	}, "--dir", "../data-slow", "--appendonly", "yes", "--appendfsync", "always")
	q := startQuery(t)
	name := defaultName(t, q, r.PID)
	c := r.Connect(t, "tcp")
	const writes = 20
	got, want := calledDuring(t, q, name, r, func() {
		for i := range writes {
			sendRedis(t, c, servertest.RESP("SET", "k", strconv.Itoa(i)), 1)
			sendRedis(t, c, servertest.RESP("GET", "k"), 1)
		}
	})
	querytest.WantCounts(t, got, want)
	querytest.WantSum(t, got)
	wantAtLeast(t, got, "write", "sync", writes*syncDelay)
	p := got.Phases["write"]
	if rest := got.Sums["write"] - p["runqueue"] - p["write"]; p["sync"] < 0.9*rest {
		t.Errorf("write: sync is %.6f s of %.6f s: %v", p["sync"], rest, p)
	}
	if s := got.Phases["read"]["sync"]; s != 0 {
		t.Errorf("reads waited %.3f s for sync", s)
	}
}
