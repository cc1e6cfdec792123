package adapter

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/plumbline/plumbline/loadgen/metrics"
)

// ConnectionError is a failure to connect.
type ConnectionError struct{ Err error }

func (e *ConnectionError) Error() string { return "connecting: " + e.Err.Error() }
func (e *ConnectionError) Unwrap() error { return e.Err }

// ErrReadOnly is the error of a server that takes no writes where some are meant.
var ErrReadOnly = errors.New("the server is read-only")

// FromServer reports whether an error is an answer of the server.
func FromServer(err error) bool {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	return errors.As(err, &pg) || errors.As(err, &my)
}

// RefusedFor is for how long everything must fail until errors that one statement may have to itself count as a server
// that takes no load.
const RefusedFor = 10 * time.Second

// Unserved reports whether a single error of a kind means that no server takes the load now. Of other kinds it takes
// many, and nothing else.
func Unserved(kind metrics.ErrorKind) bool {
	switch kind {
	case metrics.Connection, metrics.Authentication, metrics.Timeout, metrics.ReadOnly, metrics.Storage:
		return true
	}
	return false
}

// The codes by which servers report what is wrong.
var (
	// disk_full, io_error, data_corrupted, index_corrupted.
	postgresStorage = []string{"53100", "58030", "XX001", "XX002"}
	// Error on write, disk full, error on read, error on write, error of the storage backend, damaged key file, table
	// is full, crashed table (twice), no such table in the storage backend.
	mysqlStorage = []uint16{3, 1021, 1024, 1026, 1030, 1034, 1114, 1194, 1195, 1932}
	// A table is read only; InnoDB is, after innodb_read_only or innodb_force_recovery; a replication plugin refuses the
	// commit, as that of a group that has lost its quorum; --read-only; a read-only transaction; read-only mode.
	mysqlReadOnly = []uint16{1036, 1290, 1792, 1836, 1874, 1881, 3100}
	// Galera's node is not part of the primary component; shutdown; connection was killed; ProxySQL reaches no server.
	mysqlConnection = []uint16{1047, 1053, 1927, 9001}
	// No right to the database, wrong password, host that is not allowed, no password where one is wanted, password
	// that has expired.
	mysqlAuthentication = []uint16{1044, 1045, 1130, 1698, 1820, 1862}
)

// storageWords are the kernel's words for a storage that fails: servers give some of them under other codes, such as a
// file system that was made read-only after an error, which is a lack of rights to PostgreSQL.
var storageWords = []string{"No space left on device", "Disk quota exceeded", "Input/output error", "Read-only file system", "Stale file handle",
	"Structure needs cleaning", "Transport endpoint is not connected"}

// noIDsWords are PostgreSQL's in place of an answer to each write that needs a transaction ID when there is none to give.
const noIDsWords = "database is not accepting commands"

func anyOf(text string, words []string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
}

// Kind sorts an error. An unknown answer of the server is Other. What caused a failure to connect counts, where it is
// known.
func Kind(ctx context.Context, err error) metrics.ErrorKind {
	var failed *ConnectionError
	var early *pgconn.ConnectError
	if errors.As(err, &failed) || errors.As(err, &early) {
		switch kind := cause(context.Background(), err); kind {
		case metrics.Authentication, metrics.ReadOnly, metrics.Storage:
			return kind
		}
		return metrics.Connection
	}
	return cause(ctx, err)
}

func cause(ctx context.Context, err error) metrics.ErrorKind {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	var network net.Error
	switch {
	// Of several servers one may be down and the others standbys: there is none that takes writes.
	case errors.Is(err, ErrReadOnly), errors.Is(err, pgconn.ErrReadOnlyConnection):
		return metrics.ReadOnly
	case errors.As(err, &pg):
		switch {
		// An undefined file may also be a library that nobody has installed.
		case slices.Contains(postgresStorage, pg.Code), anyOf(pg.Message, storageWords), pg.Code == "58P01" && strings.Contains(pg.Message, "open file"):
			return metrics.Storage
		case pg.Code == "40001":
			return metrics.Serialization
		// PostgreSQL stops assigning transaction IDs before they wrap around.
		case pg.Code == "25006", pg.Code == "54000" && strings.Contains(pg.Message, noIDsWords):
			return metrics.ReadOnly
		case pg.Code == "40P01":
			return metrics.Deadlock
		case pg.Code == "57014", pg.Code == "55P03", pg.Code == "25P03":
			return metrics.Timeout
		case strings.HasPrefix(pg.Code, "28"):
			return metrics.Authentication
		case strings.HasPrefix(pg.Code, "08"), strings.HasPrefix(pg.Code, "57P"), pg.Severity == "FATAL":
			return metrics.Connection
		}
		return metrics.Other
	case errors.As(err, &my):
		switch my.Number {
		case 1213:
			return metrics.Deadlock
		case 1205, 3024, 1969:
			return metrics.Timeout
		}
		switch {
		case slices.Contains(mysqlReadOnly, my.Number):
			return metrics.ReadOnly
		case slices.Contains(mysqlConnection, my.Number):
			return metrics.Connection
		case slices.Contains(mysqlStorage, my.Number), anyOf(my.Message, storageWords):
			return metrics.Storage
		case slices.Contains(mysqlAuthentication, my.Number):
			return metrics.Authentication
		}
		return metrics.Other
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return metrics.Timeout
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed),
		errors.Is(err, sql.ErrConnDone), errors.Is(err, mysql.ErrInvalidConn), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return metrics.Connection
	}
	return kindOfTool(err)
}

// kindOfTool returns the kind of an error that has a load tool's message, other of an error without one.
func kindOfTool(err error) metrics.ErrorKind {
	var of *toolError
	if errors.As(err, &of) {
		return of.kind
	}
	return metrics.Other
}

// toolError is an error with the kind of a load tool's message.
type toolError struct {
	err  error
	kind metrics.ErrorKind
}

func (e *toolError) Error() string { return e.err.Error() }
func (e *toolError) Unwrap() error { return e.err }

// ToolError returns err with the kind of the tool's message.
func ToolError(err error, message string) error { return &toolError{err, KindOf(message)} }

var (
	authenticationWords = []string{"authentication failed", "no password supplied", "no pg_hba.conf entry", "is not permitted to log in", "rejects connection",
		"Access denied for user", "is not allowed to connect"}
	readOnlyWords = []string{"read-only transaction", "read only connection", "session is read-only", "--read-only option", "read_only option", "super-read-only option",
		"READ ONLY transaction", "server is read-only", noIDsWords, "InnoDB is in read only mode", "innodb_force_recovery > 0", "while running replication hook"}
	connectionWords = []string{"onnection refused", "onnection reset", "onnection to server", "onnection to client", "could not connect", "unable to connect", "an't connect",
		"annot connect", "server closed the connection", "terminating connection", "gone away", "Lost connection", "shutting down", "starting up", "recovery mode", "not yet accepting connections",
		"broken pipe", "Broken pipe", "bad connection", "no such host", "could not translate host name", "No route to host", "i/o timeout", "unexpected EOF", "connection has been closed",
		"onnection timed out", "timeout expired", "no connection to the server", "SSL SYSCALL error", "too many clients", "Too many connections", "connect: ", "WSREP has not yet prepared node", "Max connect timeout reached"}
)

// KindOf returns the kind of an error from a tool's words for it: its own, the driver's or the server's.
func KindOf(text string) metrics.ErrorKind {
	switch {
	case anyOf(text, storageWords):
		return metrics.Storage
	case anyOf(text, authenticationWords), strings.Contains(text, "FATAL:") && strings.Contains(text, "role \"") && strings.Contains(text, "does not exist"):
		return metrics.Authentication
	case anyOf(text, readOnlyWords):
		return metrics.ReadOnly
	case strings.Contains(text, "could not serialize access"):
		return metrics.Serialization
	case strings.Contains(text, "deadlock detected"), strings.Contains(text, "Deadlock found"):
		return metrics.Deadlock
	case strings.Contains(text, "statement timeout"), strings.Contains(text, "lock timeout"), strings.Contains(text, "Lock wait timeout"):
		return metrics.Timeout
	case strings.Contains(text, "FATAL:"), anyOf(text, connectionWords):
		return metrics.Connection
	}
	return metrics.Other
}
