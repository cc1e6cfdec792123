package testdb

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// Staller speaks just enough of PostgreSQL's protocol to answer every simple query with the
// row 1, at once, except while it stalls: then all answers wait.
type Staller struct {
	listener net.Listener
	gate     sync.RWMutex // held for writing during a stall
	answered atomic.Uint64
	serving  sync.WaitGroup
	mu       sync.Mutex
	open     map[net.Conn]bool
}

// StartStaller starts one on a loopback port.
func StartStaller(t testing.TB) *Staller {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &Staller{listener: listener, open: map[net.Conn]bool{}}
	s.serving.Go(s.accept)
	t.Cleanup(func() {
		listener.Close()
		s.mu.Lock()
		for c := range s.open {
			c.Close()
		}
		s.mu.Unlock()
		s.serving.Wait()
	})
	return s
}

// DSN is a connection string for pgx; libpq refuses its last parameter.
func (s *Staller) DSN() string { return s.LibpqDSN() + " default_query_exec_mode=simple_protocol" }

// LibpqDSN is a connection string for a program that uses libpq.
func (s *Staller) LibpqDSN() string {
	host, port, _ := net.SplitHostPort(s.listener.Addr().String())
	return "host=" + host + " port=" + port + " user=x dbname=x sslmode=disable gssencmode=disable"
}

// Stall holds all answers back for d, and returns when it is over.
func (s *Staller) Stall(d time.Duration) {
	s.gate.Lock()
	time.Sleep(d) // the length of the stall is what is tested
	s.gate.Unlock()
}

// Hold holds all answers back until release is called.
func (s *Staller) Hold() (release func()) {
	s.gate.Lock()
	return s.gate.Unlock
}

// Leave refuses new connections and ends those there are.
func (s *Staller) Leave() {
	s.listener.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.Close()
	}
}

// Answered is how many queries were answered.
func (s *Staller) Answered() uint64 { return s.answered.Load() }

func (s *Staller) accept() {
	for {
		c, err := s.listener.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.open[c] = true
		s.mu.Unlock()
		s.serving.Go(func() {
			s.serve(c)
			c.Close()
			s.mu.Lock()
			delete(s.open, c)
			s.mu.Unlock()
		})
	}
}

func (s *Staller) serve(c net.Conn) {
	b := pgproto3.NewBackend(c, c)
	for ready := false; !ready; {
		message, err := b.ReceiveStartupMessage()
		if err != nil {
			return
		}
		switch message.(type) {
		case *pgproto3.StartupMessage:
			ready = true
		default: // requests TLS or GSS
			if _, err := c.Write([]byte("N")); err != nil {
				return
			}
		}
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ParameterStatus{Name: "server_version", Value: "15.0"})
	b.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	b.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if b.Flush() != nil {
		return
	}
	for {
		message, err := b.Receive()
		if err != nil {
			return
		}
		if _, ok := message.(*pgproto3.Query); !ok {
			return // Terminate, or what this server does not speak
		}
		s.gate.RLock()
		b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("n"), DataTypeOID: 20, DataTypeSize: 8, TypeModifier: -1}}})
		b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("1")}})
		b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
		b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		err = b.Flush()
		s.gate.RUnlock()
		if err != nil {
			return
		}
		s.answered.Add(1)
	}
}
