// Package server finds the database servers of a node, on the host and in containers, by scanning its processes. What
// it knows of an engine is in that engine's own file.
package server

import (
	"net/netip"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/volume"
)

// ID identifies a running server: its main process, which a reused PID does not fool.
type ID struct {
	PID int
	// StartTicks is when the process began, in clock ticks since boot.
	StartTicks uint64
}

// ticksPerSecond is what procfs counts in on every architecture that the agent is built for.
const ticksPerSecond = 100

// Age returns for how long the process has run, at most a tick of the kernel's too long.
func (id ID) Age() (time.Duration, error) {
	var up unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &up); err != nil {
		return 0, err
	}
	return max(time.Duration(up.Nano())-time.Duration(id.StartTicks)*(time.Second/ticksPerSecond), 0), nil
}

// Server is one running database server.
type Server struct {
	ID
	DBSystem DBSystem
	// Name is what the server calls itself (PostgreSQL's cluster_name, by its command line or its configuration), or
	// empty.
	Name string
	// Version is as far as the data directory has it, or empty.
	Version string
	// User is who it runs as.
	User uint32
	// Group is a number for the cgroup that it is in, or empty if it is in none of its own, or that is not known.
	Group string
	// DataDirectory is the path in the server's own file system view, fit for a label.
	DataDirectory string
	// DataPath is the same as it is, with whatever bytes it has; it is no label.
	DataPath string
	// NoName is true if its command line, which may have another name than Name, did not answer.
	NoName bool
	// Ports are the TCP ports it listens on; empty until it does.
	Ports []uint16
	// Listening are the addresses it listens on, the wildcards among them; at most 16.
	Listening []netip.AddrPort
	// Program is its program's file, as it sees it; empty if unknown. A script that has a server's name becomes another.
	Program string
	// Waits is true if none of its ports is one that its kind has for clients, which a Galera node opens last: all of
	// them are in Ports then.
	Waits bool
	// Internal are ports that are not for clients, by its settings. They are not in Ports and Listening unless Waits is
	// true.
	Internal []uint16
	// UnsupportedPorts are ports on which clients speak a protocol that the agent does not parse and counts as lost.
	// They are not in Ports and Listening unless Waits is true.
	UnsupportedPorts []uint16
	// MorePorts is true if what it listens on could not be read whole: there may be more ports and addresses than
	// these.
	MorePorts bool
	// Data and WAL are where the tables and the write-ahead (redo) log are, and Binlog where MySQL's binary log is, if there
	// is one.
	Data, WAL, Binlog Storage
	// Tablespaces are where further tables are, out of the data directory; maxTablespaces at the most.
	Tablespaces []Storage
	// DataID distinguishes the data directory from others of the same path, as containers have; it is the same after a
	// restart. Empty if unknown. It is so long that nobody finds a path whose DataID is another's.
	DataID string
	// Owned is true if the data directory belongs to the server's user, or to root: it is not just any working
	// directory.
	Owned bool
	// Apart is true if its paths are not the host's: those of a container, or below another root.
	Apart bool
	// TLSLibrary is the TLS library it has loaded.
	TLSLibrary Library
	// NoLibrary is true if the libraries that it has loaded could not be read.
	NoLibrary bool
}

// Storage is where files of a server are.
type Storage struct {
	// Mount is the file system, as it is mounted where the server sees it; its Device is empty if that is not known.
	Mount volume.Mount
	// Place is the folder on it; its Path is empty if that is not known.
	Place volume.Place
}

// ClientPorts are the TCP ports on which it has clients, UnsupportedPorts last; empty until Ports has one.
func (s Server) ClientPorts() []uint16 {
	if len(s.Ports) == 0 {
		return nil
	}
	all := slices.Clone(s.Ports)
	for _, port := range s.UnsupportedPorts {
		if !slices.Contains(all, port) {
			all = append(all, port)
		}
	}
	return all
}

// maxDataID is how much of a DataID is in a name.
const maxDataID = 8

// ShortDataID is as much of the DataID as is in a server's name. It proves nothing: a user that chooses a path can have
// one like it.
func (s Server) ShortDataID() string { return s.DataID[:min(maxDataID, len(s.DataID))] }

// Owner returns the owner, the server's user and cgroup, whose limit of hanging calls applies to reads of the server's
// files. See untrusted.Calls.
func (s Server) Owner() untrusted.Owner {
	return untrusted.Owner{User: strconv.FormatUint(uint64(s.User), 10), Group: s.Group}
}
