package replica

// The tracker (track.h) is the same in every wire's object, and so are its types: these are
// their names without a wire. Slot numbers a followed process, Peer the other end of an
// engine's connection or a replica's own address; all times are nanoseconds of
// CLOCK_MONOTONIC.
type (
	// Process describes a process to follow; user space writes it for the kernel.
	Process = DataconnProcess
	// Connection is one socket with the state of its two streams.
	Connection = DataconnConnection
	// OperationKey is a connection's number and the wire's own request number.
	OperationKey = DataconnOperationKey
	// Operation is a request without its response.
	Operation = DataconnOperation
	// PeerKey is an address and port, as the socket has them.
	PeerKey = DataconnPeerKey
	// LatencyKey identifies a histogram.
	LatencyKey = DataconnLatencyKey
	// Latency is a histogram with its sum, bytes and failures.
	Latency = DataconnLatency
	// WriteKey is the extent of a write on its way to the replicas.
	WriteKey = DataconnWriteKey
	// Write is that write's state.
	Write = DataconnWrite
	// AckKey is an engine and one of its replicas.
	AckKey = DataconnAckKey
	// Acks counts the writes a replica was the last to acknowledge.
	Acks = DataconnAcks
	// SocketState is what a followed process's socket holds now (inspect.h).
	SocketState = DataconnSocketState
	// SocketFlag is a bit of SocketState.Flags.
	SocketFlag = DataconnSocketFlag
	// ProcessEvent reports a program's start or a followed process's end.
	ProcessEvent = DataconnProcessEvent
	// Event is an index of the map events.
	Event = DataconnEvent
	// Role is what a followed process is.
	Role = DataconnRole
)

// Roles of processes.
const (
	Engine  = DataconnRoleROLE_ENGINE
	Replica = DataconnRoleROLE_REPLICA
)

// Events counted by the programs.
const (
	EventResync           = DataconnEventEVENT_RESYNC
	EventUnmatched        = DataconnEventEVENT_UNMATCHED
	EventUnrecognised     = DataconnEventEVENT_UNRECOGNISED
	EventLostConnection   = DataconnEventEVENT_LOST_CONNECTION
	EventLostRequest      = DataconnEventEVENT_LOST_REQUEST
	EventLostSeries       = DataconnEventEVENT_LOST_SERIES
	EventLostGroup        = DataconnEventEVENT_LOST_GROUP
	EventLostFault        = DataconnEventEVENT_LOST_FAULT
	EventLostProcessEvent = DataconnEventEVENT_LOST_PROCESS_EVENT
	EventOverlap          = DataconnEventEVENT_OVERLAP
	EventOtherPeer        = DataconnEventEVENT_OTHER_PEER
	Events                = DataconnEventEVENTS
)

// Flags of a SocketState.
const (
	SocketTCP      = DataconnSocketFlagSOCKET_TCP
	SocketUnix     = DataconnSocketFlagSOCKET_UNIX
	SocketListens  = DataconnSocketFlagSOCKET_LISTENS
	SocketServed   = DataconnSocketFlagSOCKET_SERVED
	SocketPeerGone = DataconnSocketFlagSOCKET_PEER_GONE
	// SocketStopped and SocketFrozen are about the socket's process.
	SocketStopped = DataconnSocketFlagSOCKET_STOPPED
	SocketFrozen  = DataconnSocketFlagSOCKET_FROZEN
)

// Unix is the address family of a peer that has no address and port.
const Unix = 1
