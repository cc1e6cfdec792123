package exporterkit

import (
	"bytes"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// headerTimeout bounds how long a client may take for its request; it has no body.
	headerTimeout = 5 * time.Second
	// writeTimeout bounds how long a client may take to read its answer.
	writeTimeout = 30 * time.Second
	// idleTimeout is how long a connection is kept for the next scrape.
	idleTimeout = 2 * time.Minute
	// maxHeader bounds a request's header, in bytes.
	maxHeader = 32 << 10
	// maxScrapes is how many scrapes are gathered at once; further ones get status 503.
	maxScrapes = 4
	// maxPending is how many answers, which are kept in memory, clients may be reading at once.
	maxPending = 16
	// maxConnections bounds the open connections, which are descriptors of the process.
	maxConnections = 128
)

// newServer returns a server that slow clients cannot hold: every phase of a request has a bound
// in time, and the number of connections one in number.
func newServer(handler http.Handler) *http.Server {
	connections := &connections{limit: maxConnections, open: map[net.Conn]connection{}}
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader,
		ConnState:      connections.state,
	}
}

// metrics serves the registry and the sets.
func (a *App) metrics(log *slog.Logger) http.Handler {
	handler := promhttp.HandlerFor(prometheus.Gatherers{a.Registry, a.observed}, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError),
		// One bad series must not hide the rest of them.
		ErrorHandling:       promhttp.ContinueOnError,
		Registry:            a.Registry,
		MaxRequestsInFlight: maxScrapes,
	})
	if a.Large {
		handler = plainText(a.sets, a.Registry, log, handler)
	}
	return whole(handler)
}

// whole writes a handler's answer only when it is complete: a client that reads slowly must not
// hold one of the handler's few turns meanwhile. Of too many that read, the slowest one is cut off.
func whole(handler http.Handler) http.Handler {
	readers := &readers{limit: maxPending}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		kept := &keptAnswer{header: w.Header(), status: http.StatusOK}
		handler.ServeHTTP(kept, r)
		client := http.NewResponseController(w)
		readers.begin(client)
		defer readers.end(client)
		w.Header().Set("Content-Length", strconv.Itoa(kept.body.Len()))
		w.WriteHeader(kept.status)
		_, _ = w.Write(kept.body.Bytes()) // a client that is gone needs no answer
		_ = client.Flush()                // while it may still be cut off
	})
}

// readers are the clients that read an answer, the one that began first in front.
type readers struct {
	limit int

	mu   sync.Mutex
	list []*http.ResponseController
}

func (r *readers) begin(client *http.ResponseController) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.list) >= r.limit {
		_ = r.list[0].SetWriteDeadline(time.Now())
		r.list = r.list[1:]
	}
	r.list = append(r.list, client)
}

func (r *readers) end(client *http.ResponseController) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = slices.DeleteFunc(r.list, func(other *http.ResponseController) bool { return other == client })
}

type keptAnswer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (k *keptAnswer) Header() http.Header         { return k.header }
func (k *keptAnswer) WriteHeader(status int)      { k.status = status }
func (k *keptAnswer) Write(p []byte) (int, error) { return k.body.Write(p) }

// connections bounds how many connections are open. A new one above the limit ends the one that
// has been without a request for longest, or, if all have one, the one whose request is the oldest.
type connections struct {
	limit int

	mu   sync.Mutex
	open map[net.Conn]connection
}

type connection struct {
	active bool // it has a request
	since  time.Time
}

// state is an http.Server's ConnState.
func (c *connections) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if len(c.open) >= c.limit {
			c.endOne()
		}
		c.open[conn] = connection{false, time.Now()}
	case http.StateActive, http.StateIdle:
		if _, known := c.open[conn]; known {
			c.open[conn] = connection{state == http.StateActive, time.Now()}
		}
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	}
}

func (c *connections) endOne() {
	var end net.Conn
	for conn, known := range c.open {
		if end == nil || !known.active && c.open[end].active ||
			known.active == c.open[end].active && known.since.Before(c.open[end].since) {
			end = conn
		}
	}
	delete(c.open, end)
	go end.Close() // TLS sends close_notify, which may block
}
