/* A received chunk on its way through a parser. Messages may be split at any byte.
 *
 * Where the parser stands is kept in the backend, not on the stack: the verifier follows
 * values on the stack from step to step and would never come to an end. */
#ifndef __QUERY_FEED_H__
#define __QUERY_FEED_H__

#include "state.h"

struct feed {
	struct backend *b;
};

static __always_inline void feed(struct backend *b, u64 buf, u32 len)
{
	b->in_buf = buf;
	b->in_left = len;
	b->staged = 0;
	b->stage_at = 0;
}

static __always_inline void consume(struct backend *b, u32 n)
{
	b->in_buf += n;
	b->in_left -= n;
	b->stage_at += n;
}

/* Passes over what is left of the last message; false at the end of the chunk. */
static __always_inline bool skip_bytes(struct backend *b)
{
	u32 n = b->skip < b->in_left ? b->skip : b->in_left;
	if (n) {
		b->skip -= n;
		consume(b, n);
	}
	return b->in_left > 0;
}

/* Copies bytes to bytes[HEAD] until it has want of them; false at the end of the chunk. */
static __always_inline bool gather(struct backend *b, u32 want)
{
	u32 have = b->head_len;
	if (have >= want)
		return true;
	u32 n = want - have;
	if (n > b->in_left)
		n = b->in_left;
	if (n > 127)
		return false;
	barrier_var(n);
	if (n && bpf_probe_read_user(&b->bytes[HEAD + (have & 127)], n & 127, (void *)b->in_buf)) {
		lose(b->server, LOST_PROTOCOL);
		b->conn = CONN_LOST;
		b->head_len = 0;
		b->skip = 0;
		b->in_left = 0;
		return false;
	}
	b->head_len = have + n;
	consume(b, n);
	return b->head_len >= want;
}

#endif
