// Package trace joins the events of BPF programs (statements, tasks that slept, block requests and storage backends'
// operations) to chains: one statement followed through the layers. It is pure: the same events give the same chains.
//
// What ties an event to another one is what the kernel did, not what is likely. A sleep names what ended it: the end of
// a block request, by its address and time, or a task, whose own sleeps until then are what was waited for. So a
// statement whose log another session has flushed leads to that session's requests, and one that waited for a journal
// to the journal's. A request's way through a storage backend is known by operation, offset, length and time: if two
// operations would fit, or one would fit two requests, the chain is ambiguous, and counted as that. Nothing is guessed.
package trace

import (
	"fmt"
	"unsafe"

	"github.com/plumbline/plumbline/exporters/agent/bpf/query"
	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/trace"
)

// Event is what a program reports: bpf/trace.h describes it.
type Event = bpf.TraceTraceEvent

// Kinds of events.
const (
	KindStatement = uint8(bpf.TraceTraceKindTRACE_STATEMENT)
	KindWait      = uint8(bpf.TraceTraceKindTRACE_WAIT)
	KindRequest   = uint8(bpf.TraceTraceKindTRACE_REQUEST)
	KindOperation = uint8(bpf.TraceTraceKindTRACE_OPERATION)
)

// What ended a wait.
const (
	wokenUnseen    = uint8(bpf.TraceWakeReasonWAKE_UNSEEN)
	wokenByRequest = uint8(bpf.TraceWakeReasonWAKE_REQUEST)
	wokenBySignal  = uint8(bpf.TraceWakeReasonWAKE_SIGNAL)
	wokenByCall    = uint8(bpf.TraceWakeReasonWAKE_CALL)
	wokenByKernel  = uint8(bpf.TraceWakeReasonWAKE_KERNEL)
	wokenByOther   = uint8(bpf.TraceWakeReasonWAKE_OTHER)
)

// Flags of events.
const (
	flagWakerServer = uint8(bpf.TraceTraceFlagTRACE_WAKER_SERVER)
	flagWakerHelper = uint8(bpf.TraceTraceFlagTRACE_WAKER_HELPER)
	flagTakenOver   = uint8(bpf.TraceTraceFlagTRACE_TAKEN_OVER)
	flagFlushes     = uint8(bpf.TraceTraceFlagTRACE_FLUSHES)
)

// What a wait is for.
const (
	waitRead   = uint8(query.QueryPhasePHASE_READ)
	waitWrite  = uint8(query.QueryPhasePHASE_WRITE)
	waitSync   = uint8(query.QueryPhasePHASE_SYNC)
	waitClient = uint8(query.QueryPhasePHASE_CLIENT)
	waitHelper = uint8(bpf.TraceTraceWaitTRACE_HELPER)
)

// Kinds of block requests, REQ_OP_ of the kernel.
const (
	blockRead    = 0
	blockWrite   = 1
	blockFlush   = 2
	blockDiscard = 3
)

// noOffset is a call's offset that is not known.
const noOffset = ^uint64(0)

// Parse returns the event in a ring buffer's record.
func Parse(record []byte) (Event, error) {
	var e Event
	if len(record) < int(unsafe.Sizeof(e)) {
		return e, fmt.Errorf("an event of %d bytes, want %d", len(record), unsafe.Sizeof(e))
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e)), record)
	return e, nil
}

// overlaps reports whether an event lies in part between two times.
func overlaps(e *Event, from, to uint64) bool { return e.Start < to && e.End > from }

// ofFile reports whether a wait was in a call on a file.
func ofFile(e *Event) bool {
	return e.Subtype == waitRead || e.Subtype == waitWrite || e.Subtype == waitSync
}
