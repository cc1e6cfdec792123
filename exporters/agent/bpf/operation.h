/* What all storage wires' programs keep of the operations that have ended, whatever reports their beginning and end:
 * messages on a socket (replica/track.h) or the kernel's own tracepoints (fabric/fabric.h).
 */
#ifndef __PLUMBLINE_OPERATION_H__
#define __PLUMBLINE_OPERATION_H__

#include "../../bpf/native_histogram.h"

/* What an operation does; the label op has these names, in this order. */
enum wire_op {
	OP_READ,
	OP_WRITE,
	OP_UNMAP,
	OP_SYNC,
	OP_PING,
	OP_OTHER,
};

/* The ended operations of one kind and one peer. */
struct latency {
	u64 slots[NATIVE_SLOTS]; /* by duration, native_histogram.h */
	u64 sum_ns;
	u64 bytes;  /* of those that did not fail */
	u64 failed; /* answered by an error; these are in slots, too */
};

static const struct latency no_latency;

/* A global function, so that the verifier checks it once, not for each way that leads to it. */
__noinline u32 slot_of(u64 ns)
{
	return native_slot(ns);
}

/* One more operation has ended. */
static __always_inline void latency_add(struct latency *l, u64 ns, u64 bytes, bool failed)
{
	u32 slot = slot_of(ns);

	/* The verifier does not know what the compiler does: this is in range. */
	barrier_var(slot);
	if (slot < NATIVE_SLOTS)
		__sync_fetch_and_add(&l->slots[slot], 1);
	__sync_fetch_and_add(&l->sum_ns, ns);
	if (failed)
		__sync_fetch_and_add(&l->failed, 1);
	else
		__sync_fetch_and_add(&l->bytes, bytes);
}

#endif
