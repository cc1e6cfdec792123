/* A received chunk on its way through a parser. Messages may be split at any byte.
 *
 * Where the parser stands is kept in the connection, not on the stack: the verifier follows
 * values on the stack from step to step and would never come to an end. */
#ifndef __QUERY_FEED_H__
#define __QUERY_FEED_H__

#include "prepared.h"

struct feed {
	struct followed_task *followed;
	struct connection *c;
	struct names *names;
};

static __always_inline void feed(struct connection *c, u64 buf, u32 len)
{
	c->in_buf = buf;
	c->in_left = len;
	c->staged = 0;
	c->stage_at = 0;
}

static __always_inline void consume(struct connection *c, u32 n)
{
	c->in_buf += n;
	c->in_left -= n;
	c->stage_at += n;
}

/* Passes over what is left of the last message; false at the end of the chunk. */
static __always_inline bool skip_bytes(struct connection *c)
{
	u32 n = c->skip < c->in_left ? c->skip : c->in_left;
	if (n) {
		c->skip -= n;
		consume(c, n);
	}
	return c->in_left > 0;
}

/* Copies bytes to bytes[HEAD_OFFSET] until it has want of them; false at the end of the chunk. */
static __always_inline bool gather(struct connection *c, u32 want)
{
	u32 have = c->head_len;
	if (have >= want)
		return true;
	u32 n = want - have;
	if (n > c->in_left)
		n = c->in_left;
	if (n > 127)
		return false;
	barrier_var(n);
	if (n && bpf_probe_read_user(&c->bytes[HEAD_OFFSET + (have & 127)], n & 127, (void *)c->in_buf)) {
		count_loss(c->server, LOST_PROTOCOL);
		c->conn = CONN_LOST;
		c->head_len = 0;
		c->skip = 0;
		c->in_left = 0;
		return false;
	}
	c->head_len = have + n;
	consume(c, n);
	return c->head_len >= want;
}

/* Copies the bytes at hand to bytes[STAGE_OFFSET]; false if they cannot be read. */
static __always_inline bool stage(struct connection *c)
{
	u32 n = c->in_left < STAGE_BYTES ? c->in_left : STAGE_BYTES;
	c->staged = 0;
	barrier_var(n);
	if (bpf_probe_read_user(&c->bytes[STAGE_OFFSET], n & (2 * STAGE_BYTES - 1), (void *)c->in_buf))
		return false;
	c->stage_at = 0;
	c->staged = n;
	return true;
}

/* The eight bytes at a user address; 0 if they cannot be read. A small stack is cheaper to read to. */
__noinline u64 user_word(u64 at)
{
	u64 word = 0;
	bpf_probe_read_user(&word, sizeof(word), (void *)at);
	return word;
}

/* A word of up to eight letters as the number its lower-case bytes make. */
#define WORD(a, followed, c, d, e, f, g, h) \
	((u64)(a) | (u64)(followed) << 8 | (u64)(c) << 16 | (u64)(d) << 24 | (u64)(e) << 32 | \
		(u64)(f) << 40 | (u64)(g) << 48 | (u64)(h) << 56)

#define UNDERSCORE ('_' | 0x20) /* made small as letters are */

#define LOWER 0x2020202020202020ULL
#define LETTERS(n) ((1ULL << (8 * (n))) - 1)

#endif
