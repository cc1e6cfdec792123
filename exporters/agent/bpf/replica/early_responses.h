/* Responses that are read before their request was seen. A send can be seen as late as at its
 * end (sockets.h), when the answer may be back already. Such an answer is remembered until
 * the end of the send under way, where its request is met and is over at once. Otherwise that would
 * be under way for ever, as if the replica had stalled.
 *
 * The two ends of a connection can be at work on two CPUs at once: each writes its own part and
 * then looks for the other's, and who takes the early response deals with the operation.
 */
#ifndef __PLUMBLINE_EARLY_RESPONSES_H__
#define __PLUMBLINE_EARLY_RESPONSES_H__

static __always_inline void early_response_put(struct connection *c, u64 id)
{
	u32 at = __sync_fetch_and_add(&c->early_count, 1);

	if (at < EARLY_RESPONSES)
		__sync_lock_test_and_set(&c->early_responses[at & (EARLY_RESPONSES - 1)], id + 1);
}

/* Takes an early response out; false if it is none, or if the other end was faster. */
static __noinline bool early_response_take(struct connection *c, u64 id)
{
	for (u32 i = 0; i < EARLY_RESPONSES; i++)
		if (c->early_responses[i] == id + 1 && __sync_val_compare_and_swap(&c->early_responses[i], id + 1, 0) == id + 1)
			return true;
	return false;
}

/* At a send's end all its requests are known: an answer without one belongs to none. */
static __always_inline void early_responses_forget(struct connection *c)
{
	if (!c->early_count)
		return;
	for (u32 i = 0; i < EARLY_RESPONSES; i++)
		c->early_responses[i] = 0;
	c->early_count = 0;
}

#endif
