// Package server finds the database servers of a node: PostgreSQL, MySQL and MariaDB, on the
// host and in containers, by looking at its processes.
package server

import "fmt"

// Engine is a kind of database server, as in the engine label.
type Engine string

// The engines that are found.
const (
	PostgreSQL Engine = "postgresql"
	MySQL      Engine = "mysql"
	MariaDB    Engine = "mariadb"
)

// ID identifies a running server: its main process, which a reused PID does not fool.
type ID struct {
	PID int
	// StartTicks is when the process began, in clock ticks since boot.
	StartTicks uint64
}

// Server is one running database server.
type Server struct {
	ID
	Engine Engine
	// Name is what the server calls itself (PostgreSQL's cluster_name), or empty.
	Name string
	// Version is as far as the data directory tells it, or empty.
	Version string
	// DataDirectory is the path in the server's own file system view.
	DataDirectory string
	// Ports are the TCP ports it listens on; empty until it does.
	Ports []uint16
	// Data and WAL are the device numbers, as major:minor, of the file systems that hold the
	// tables and the write-ahead (redo) log; empty if unknown.
	Data, WAL string
	// DataSource and WALSource are where the mount table says those file systems come from,
	// for those with an anonymous number.
	DataSource, WALSource string
	// TLSLibrary is the path of the TLS library it has loaded, below its root in procfs; empty
	// if it has none.
	TLSLibrary string
}

// DefaultName is what a server is called that does not name itself: its engine and port, or
// only the engine before it listens or when it does so on no TCP port.
func (s Server) DefaultName() string {
	if len(s.Ports) == 0 {
		return string(s.Engine)
	}
	return fmt.Sprintf("%s-%d", s.Engine, s.Ports[0])
}
