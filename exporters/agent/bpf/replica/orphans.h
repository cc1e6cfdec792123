/* Responses that are read before their request was seen. A send can be seen as late as at its
 * end (sockets.h), when the answer may be back already. Such an answer is remembered until
 * the end of the send under way, where its request is met and is over at once. Otherwise that would
 * be under way for ever, as if the replica had stalled.
 *
 * The two ends of a connection can be at work on two CPUs at once: each writes its own part and
 * then looks for the other's, and who takes the orphan deals with the operation.
 */
#ifndef __PLUMBLINE_ORPHANS_H__
#define __PLUMBLINE_ORPHANS_H__

static __always_inline void orphan_put(struct connection *c, u64 id)
{
	u32 at = __sync_fetch_and_add(&c->orphaned, 1);

	if (at < ORPHANS)
		__sync_lock_test_and_set(&c->orphans[at & (ORPHANS - 1)], id + 1);
}

/* Takes an orphan out; false if it is none, or if the other end was faster. */
static __noinline bool orphan_take(struct connection *c, u64 id)
{
	for (u32 i = 0; i < ORPHANS; i++)
		if (c->orphans[i] == id + 1 && __sync_val_compare_and_swap(&c->orphans[i], id + 1, 0) == id + 1)
			return true;
	return false;
}

/* At a send's end all its requests are known: an answer without one belongs to none. */
static __always_inline void orphans_forget(struct connection *c)
{
	if (!c->orphaned)
		return;
	for (u32 i = 0; i < ORPHANS; i++)
		c->orphans[i] = 0;
	c->orphaned = 0;
}

#endif
