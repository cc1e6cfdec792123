package fabric

// Names of the generated types, without the object's. All times are nanoseconds of CLOCK_MONOTONIC.
type (
	// ExportKey is a namespace that a target here serves, on one of its ports.
	ExportKey = NvmeExportKey
	// Export is what is known of it.
	Export = NvmeExport
	// Operation is a command without its completion.
	Operation = NvmeOperation
	// Controller is one that a target here serves.
	Controller = NvmeController
	// LatencyKey identifies a histogram.
	LatencyKey = NvmeLatencyKey
	// Event is an index of the map events.
	Event = NvmeEvent
)

// Events counted by the programs.
const (
	EventUnmatched     = NvmeEventEVENT_UNMATCHED
	EventReplaced      = NvmeEventEVENT_REPLACED
	EventLostOperation = NvmeEventEVENT_LOST_OPERATION
	EventLostSeries    = NvmeEventEVENT_LOST_SERIES
	EventOther         = NvmeEventEVENT_OTHER
	Events             = NvmeEventEVENTS
)

// Ignored is the number of a disk that the programs leave alone.
const Ignored = 0xffffffff
