package collector

import (
	"time"
)

// MaxServers bounds the servers with series of their own.
const MaxServers = 255

// OtherServer is the label value that servers above the limit share.
const OtherServer = "other"

// KeepTime is how long the series of a server that ended are kept, so that a scrape gets
// its last statements and a restart goes on counting.
const KeepTime = 15 * time.Minute
