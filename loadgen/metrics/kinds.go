package metrics

import "slices"

// Phase is where a load is in its life.
type Phase string

// The phases. Only a steady phase is fit for judging a regression.
const (
	Init     Phase = "init"    // tables are being made and filled
	Warmup   Phase = "warmup"  // running, but caches and connections are still cold
	Steady   Phase = "steady"  // running
	Unserved Phase = "down"    // no server takes the load: it refuses, is read-only, its storage fails, or it answers nothing but errors; loadgen_errors_total has the kind
	Stopped  Phase = "stopped" // the tool is not running: not yet, not any more, or between two tries
)

// Kinds are the kinds of errors.
func Kinds() []ErrorKind { return slices.Clone(errorKinds) }

// ErrorKind is what went wrong with a transaction or with the tool's connection.
type ErrorKind string

// The kinds of errors, a closed list to keep the label bounded.
const (
	Connection     ErrorKind = "connection"
	Authentication ErrorKind = "authentication" // the server refuses the user, the password or the host
	Serialization  ErrorKind = "serialization"
	Deadlock       ErrorKind = "deadlock"
	Timeout        ErrorKind = "timeout"
	ReadOnly       ErrorKind = "read_only" // the server is a standby, or was made one
	Storage        ErrorKind = "storage"   // the server answers that its disk is full, fails, or holds damaged data
	Other          ErrorKind = "other"
)

// SkipReason is why an offered transaction was never sent.
type SkipReason string

// The reasons for a skip.
const (
	Late SkipReason = "late" // its turn came after the latency limit, or the queue was full
	Down SkipReason = "down" // it fell due while the server was down
	Tool SkipReason = "tool" // it fell due while the load tool was down by itself: that is no answer of the server, and has no response time
	End  SkipReason = "end"  // it waited for its turn when the load ended: how long it would have taken is not known
)

// RestartReason is why a tool had to be started again.
type RestartReason string

// The reasons for a restart.
const (
	Exited      RestartReason = "exit"         // it ended by itself
	Killed      RestartReason = "killed"       // a signal ended it
	StartFailed RestartReason = "start_failed" // it could not be started
	ServerDown  RestartReason = "server_down"  // the server refused or dropped its connections
)

var (
	phases         = []Phase{Init, Warmup, Steady, Unserved, Stopped}
	errorKinds     = []ErrorKind{Connection, Authentication, Serialization, Deadlock, Timeout, ReadOnly, Storage, Other}
	skipReasons    = []SkipReason{Late, Down, Tool, End}
	restartReasons = []RestartReason{Exited, Killed, StartFailed, ServerDown}
)
