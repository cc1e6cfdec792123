package server

import (
	"time"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

const (
	// parallel is how many processes are looked at side by side, each of which may hang for some seconds. One owner,
	// which may start as many as it likes, has a share, as of all calls that may hang: see untrusted.Calls.
	parallel = 64
	// lookWait is for how long a look waits for others of its owner, before it is left for another time.
	lookWait = 10 * time.Second
)

// newLooks returns what bounds the looks under way.
func newLooks() *untrusted.Calls { return untrusted.NewCalls(lookWait, parallel) }
