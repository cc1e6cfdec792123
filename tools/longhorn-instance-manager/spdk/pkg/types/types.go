// Package types has what longhorn-instance-manager reads of volumes of the V2 data engine.
package types

// Mode is a replica's mode.
type Mode string

// The modes of a replica, and the state of a rebuild that goes on.
const (
	ModeRW  Mode = "RW"
	ModeWO  Mode = "WO"
	ModeERR Mode = "ERR"

	ProgressStateInProgress = "in_progress"
)
