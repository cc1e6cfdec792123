package fabric

// Of the programs that follow targets in user space (server.h).
type (
	// Session is an initiator's with a target in user space.
	Session = IscsiServerSession
	// Parsed is what the programs' parser makes of a message's header.
	Parsed = IscsiServerParsed
	// Message is a message's header.
	Message = IscsiServerMessage
	// ServerEvent is an index of the map server_events.
	ServerEvent = IscsiServerServerEvent
	// ServerSocket is a socket that a target has open.
	ServerSocket struct{ Inode uint64 }
)

// Events counted by these programs.
const (
	ServerResync      = IscsiServerServerEventSERVER_RESYNC
	ServerLostSession = IscsiServerServerEventSERVER_LOST_SESSION
	ServerLostFault   = IscsiServerServerEventSERVER_LOST_FAULT
	ServerEvents      = IscsiServerServerEventSERVER_EVENTS
)
