package server

import (
	"time"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

const (
	// parallel is how many processes are scanned side by side, each of which may hang for some seconds. One owner,
	// which may start as many as it likes, has a share, as of all calls that may hang: see untrusted.Calls.
	parallel = 64
	// scanWait is for how long a scan waits for others of its owner, before it is left for another time.
	scanWait = 10 * time.Second
)

// newScanLimit returns what bounds the scans under way.
func newScanLimit() *untrusted.Calls { return untrusted.NewCalls(scanWait, parallel) }
