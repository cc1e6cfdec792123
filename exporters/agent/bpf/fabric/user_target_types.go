package fabric

// Of the programs that follow targets in user space (user_target.h).
type (
	// Session is an initiator's with a target in user space.
	Session = IscsiTargetSession
	// Parsed is what the programs' parser makes of a message's header.
	Parsed = IscsiTargetParsed
	// Message is a message's header.
	Message = IscsiTargetMessage
	// UserTargetEvent is an index of the map user_target_events.
	UserTargetEvent = IscsiTargetUserTargetEvent
	// UserTargetSocket is a socket that a target has open.
	UserTargetSocket struct{ Inode uint64 }
)

// Events counted by these programs.
const (
	UserTargetResync      = IscsiTargetUserTargetEventUSER_TARGET_RESYNC
	UserTargetLostSession = IscsiTargetUserTargetEventUSER_TARGET_LOST_SESSION
	UserTargetLostFault   = IscsiTargetUserTargetEventUSER_TARGET_LOST_FAULT
	UserTargetEvents      = IscsiTargetUserTargetEventUSER_TARGET_EVENTS
)
