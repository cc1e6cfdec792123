package exporterkit

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/tests/testkit"
)

// largeApp serves some 8 MB, more than the kernel keeps for a connection.
func largeApp() *App {
	app := New("test", "Test.", "127.0.0.1:0")
	set := app.NewSet(slog.New(slog.DiscardHandler))
	set.Add("large", updateFunc(func(ch chan<- prometheus.Metric) error {
		filler := strings.Repeat("x", 8000)
		for i := range 1000 {
			sendOne(ch, fmt.Sprint(i, filler))
		}
		return nil
	}))
	return app
}

func serve(t *testing.T, server *http.Server) string {
	t.Helper()
	s := httptest.NewUnstartedServer(nil)
	s.Config = server
	s.Start()
	t.Cleanup(func() {
		s.Config.Close() // slow clients are still there
		s.Close()
	})
	return s.Listener.Addr().String()
}

// slowReader requests the metrics and reads no more than the first line of the answer.
func slowReader(t *testing.T, address string) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	// The kernel's buffers of both ends must not hold the whole answer: they grow to 6 and 4 MB by themselves.
	if err := conn.(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(testkit.DefaultTimeout))
	fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	answer := bufio.NewReader(conn)
	if line, _, err := answer.ReadLine(); err != nil || !strings.Contains(string(line), "HTTP/1.1 200") {
		t.Fatalf("%q, %v", line, err)
	}
	return answer
}

// Clients that read slowly hold no turn: others are answered meanwhile.
func TestSlowReadersHoldNobody(t *testing.T) {
	address := serve(t, newServer(largeApp().metrics(slog.New(slog.DiscardHandler))))
	var slow []*bufio.Reader
	for range maxScrapes + 2 {
		slow = append(slow, slowReader(t, address))
	}
	response, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); response.StatusCode != http.StatusOK || err != nil || !strings.Contains(string(body), "plumbline_scrape_collector_success") {
		t.Errorf("%s, %v, %d bytes", response.Status, err, len(body))
	}
	answer, err := http.ReadResponse(bufio.NewReader(io.MultiReader(strings.NewReader("HTTP/1.1 200 OK\r\n"), slow[0])), nil)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, answer.Body); err != nil || n < 8_000_000 {
		t.Errorf("a slow reader that goes on gets %d bytes: %v", n, err)
	}
}

// Of too many slow readers the first one is cut off; what their answers take of memory is bounded.
func TestSlowestReaderIsCutOff(t *testing.T) {
	server := newServer(largeApp().metrics(slog.New(slog.DiscardHandler)))
	server.WriteTimeout = 0 // it is not what ends them here
	begun, ended := make(chan net.Conn, maxPending+1), make(chan net.Conn, maxPending+1)
	server.ConnState = func(conn net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			begun <- conn
		case http.StateClosed:
			ended <- conn
		}
	}
	address := serve(t, server)
	for range maxPending {
		slowReader(t, address)
	}
	if len(ended) > 0 {
		t.Fatalf("%d of %d slow readers were cut off", len(ended), maxPending)
	}
	slowReader(t, address)
	// Nobody reads meanwhile: a client that does might have all of its answer just then.
	select {
	case conn := <-ended:
		if conn != <-begun {
			t.Error("another slow reader than the first one was cut off")
		}
	case <-time.After(testkit.DefaultTimeout):
		t.Errorf("no one of %d slow readers was cut off", maxPending+1)
	}
}

// Connections without a request are bounded in number, and give way to those that have one.
func TestConnectionsAreBounded(t *testing.T) {
	server := newServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "well") }))
	bound := &connections{limit: 3, open: map[net.Conn]connection{}}
	server.ConnState = bound.state
	server.ReadHeaderTimeout, server.ReadTimeout = 0, 0
	address := serve(t, server)
	var silent []net.Conn
	for range 10 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET / HTTP/1.1\r\n")
		silent = append(silent, conn)
	}
	response, err := http.Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	silent[0].SetReadDeadline(time.Now().Add(testkit.DefaultTimeout))
	if _, err := silent[0].Read(make([]byte, 1)); err == nil || strings.Contains(err.Error(), "timeout") {
		t.Errorf("the first silent connection is still open: %v", err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		bound.mu.Lock()
		defer bound.mu.Unlock()
		if len(bound.open) > 3 {
			return fmt.Errorf("%d connections", len(bound.open))
		}
		return nil
	})
}

// Every phase of a request is bounded in time.
func TestServerHasTimeouts(t *testing.T) {
	s := newServer(nil)
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.WriteTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 {
		t.Errorf("%+v", s)
	}
}

// The time-out of collectors is a flag of every program.
func TestCollectorTimeoutFlag(t *testing.T) {
	app := New("test", "Test.", "127.0.0.1:0")
	log := app.Parse([]string{"--scrape.collector-timeout=25ms"})
	if set := app.NewSet(log); set.timeout != 25*time.Millisecond {
		t.Errorf("time-out %s", set.timeout)
	}
	if set := New("test", "Test.", "").NewSet(log); set.timeout != DefaultTimeout {
		t.Errorf("time-out %s without a command line", set.timeout)
	}
}
