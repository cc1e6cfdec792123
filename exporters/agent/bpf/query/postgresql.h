/* PostgreSQL's wire protocol, version 3, as far as it tells where requests begin and end:
 * https://www.postgresql.org/docs/current/protocol-message-formats.html
 *
 * A request is a Query message, a FunctionCall message, or everything up to a Sync. Each is
 * answered by one ReadyForQuery, sent after the commit and its WAL flush. Requests without
 * Query or Execute (a Parse, a Describe) are not statements and are left out. */
#ifndef __QUERY_POSTGRESQL_H__
#define __QUERY_POSTGRESQL_H__

#include "clock.h"
#include "feed.h"
#include "prepared.h"
#include "sql.h"

#define PG_HEADER 5
#define PG_MAX_MESSAGE 0x3fffffff

static __always_inline void push_request(struct backend *b, u8 request)
{
	if (b->pending_tail - b->pending_head >= PENDING) {
		lose(b->server, LOST_PIPELINE);
		return;
	}
	u32 at = b->pending_tail & (PENDING - 1);
	b->pending[at] = request;
	if (!b->reopened)
		b->arrival[at] = b->pending_tail == b->pending_head ? 0 : bpf_ktime_get_ns();
	b->reopened = 0;
	b->pending_tail++;
}

/* COPY data from the client: the server ignores the Sync that came right behind the Execute,
 * so that the request goes on to the Sync behind the data. */
static __always_inline void reopen_request(struct backend *b)
{
	if (b->pending_tail == b->pending_head)
		return;
	u8 request = b->pending[(b->pending_tail - 1) & (PENDING - 1)];
	if (!(request & FROM_SYNC))
		return;
	b->pending_tail--;
	b->request = request & ~FROM_SYNC;
	b->request_open = 1;
	b->reopened = 1;
}

static __always_inline void forget_requests(struct backend *b)
{
	b->pending_head = b->pending_tail;
	b->request = 0;
	b->request_open = 0;
	b->reopened = 0;
	b->head_len = 0;
	b->skip = 0;
}

/* A zero-terminated name in bytes[]. */
struct name {
	struct backend *b;
	u32 from, end;
	u32 pos; /* behind what has been passed over */
};

static long name_byte(u32 i, struct name *n)
{
	u32 pos = n->from + i;
	if (pos >= n->end || pos >= 2 * STAGE)
		return 1;
	n->pos = pos + 1;
	return n->b->bytes[pos] == 0;
}

/* Passes over a name and its zero. */
static __always_inline void skip_name(struct name *n)
{
	if (n->pos < 2 * STAGE && n->b->bytes[n->pos] == 0) {
		n->pos++;
	} else {
		n->from = n->pos;
		bpf_loop(BODY, name_byte, n, 0);
	}
}

#define ONES 0x0101010101010101ULL
#define HIGHS 0x8080808080808080ULL

/* Hash of the name at pos, its first 64 bytes at most; 0 if it is empty. */
__noinline u32 name_hash(struct backend *b, u32 pos, u32 end)
{
	if (!b)
		return 0;
	u64 hash = 0;
	for (int i = 0; i < 8; i++) {
		if (pos >= end)
			break;
		u64 text = eight_bytes(b, pos);
		u64 zeros = (text - ONES) & ~text & HIGHS;
		if (zeros)
			text &= ((zeros & -zeros) >> 7) - 1; /* the bytes before the first zero */
		hash = (hash ^ text) * 0x9e3779b97f4a7c15ULL;
		if (zeros)
			break;
		pos += 8;
	}
	/* Names differ in their last letters, which so far reach the upper bits alone. */
	hash ^= hash >> 32;
	return hash * 0x9e3779b97f4a7c15ULL >> 32;
}

/* A message whose header and first bytes are in bytes[from:end]. */
__noinline int pg_message(struct backend *b, u32 from, u32 end)
{
	if (!b || from > STAGE + STAGED)
		return 0;
	b->understood = 1;
	struct name n = { .b = b, .pos = from + PG_HEADER, .end = end };
	u32 hash;
	switch (b->bytes[from]) {
	case 'Q':
		push_request(b, request_of(classify(b, n.pos, end)));
		break;
	case 'P':
		b->request_open = 1;
		hash = name_hash(b, n.pos, end);
		skip_name(&n);
		if (hash)
			remember(hash, classify(b, n.pos, end));
		else
			b->unnamed = classify(b, n.pos, end);
		break;
	case 'B':
		b->request_open = 1;
		skip_name(&n); /* the portal */
		hash = name_hash(b, n.pos, end);
		b->bound = hash ? recall(hash) : b->unnamed;
		break;
	case 'E':
		b->request_open = 1;
		/* Several in one request are one statement, named after the first. */
		if (!(b->request & HAS_STATEMENT))
			b->request = b->bound | HAS_STATEMENT;
		break;
	case 'C':
		b->request_open = 1;
		if (b->bytes[n.pos & (2 * STAGE - 1)] == 'S') {
			hash = name_hash(b, n.pos + 1, end);
			if (hash)
				forget_name(hash);
		}
		break;
	case 'F':
		push_request(b, OTHER | HAS_STATEMENT);
		break;
	case 'S':
		push_request(b, b->request | FROM_SYNC);
		b->request = 0;
		b->request_open = 0;
		break;
	case 'd':
	case 'c':
	case 'f':
		reopen_request(b);
		break;
	}
	return 0;
}

/* Body bytes wanted of a message, or -1 if no client sends such a message. */
static __always_inline int pg_wanted(u8 type)
{
	switch (type) {
	case 'Q': case 'P': case 'B': case 'C':
		return BODY;
	case 'E': case 'S': case 'F': case 'D': case 'H': case 'X':
	case 'd': case 'c': case 'f': case 'p':
		return 0;
	}
	return -1;
}

/* Bytes to look at of the message with this header, header included, or 0 if no client
 * sends such a message. Leaves the body's length in b->body. */
static __always_inline u32 pg_header(struct backend *b, u32 at)
{
	if (at > STAGE + STAGED)
		return 0;
	u8 *h = &b->bytes[at];
	u32 len = (u32)h[1] << 24 | (u32)h[2] << 16 | (u32)h[3] << 8 | h[4];
	int wanted = pg_wanted(h[0]);
	if (wanted < 0 || len < 4 || len > PG_MAX_MESSAGE)
		return 0;
	b->body = len - 4;
	return PG_HEADER + (b->body < (u32)wanted ? b->body : (u32)wanted);
}

static __always_inline long pg_confused(struct backend *b)
{
	b->conn = CONN_LOST;
	abandon(b, bpf_get_current_task_btf(), bpf_ktime_get_ns());
	forget_requests(b);
	lose(b->server, LOST_PROTOCOL);
	return 1;
}

/* Copies the bytes at hand to bytes[STAGE]; false if they cannot be read. */
static __always_inline bool stage(struct backend *b)
{
	u32 n = b->in_left < STAGED ? b->in_left : STAGED;
	b->staged = 0;
	barrier_var(n);
	if (bpf_probe_read_user(&b->bytes[STAGE], n & (2 * STAGED - 1), (void *)b->in_buf))
		return false;
	b->stage_at = 0;
	b->staged = n;
	return true;
}

/* One message of those that have come as a whole, or at least as far as it is looked at;
 * 0 if the next one comes in parts. */
static __always_inline u32 pg_whole(struct backend *b)
{
	for (int i = 0; i < 2; i++) {
		u32 at = b->stage_at;
		if (at <= STAGED && at + PG_HEADER <= b->staged) {
			u32 want = pg_header(b, STAGE + at);
			if (!want)
				return pg_confused(b), ~0U;
			if (at + want <= b->staged) {
				pg_message(b, STAGE + at, STAGE + at + want);
				return PG_HEADER + b->body;
			}
			if (want > b->in_left)
				return 0;
		} else if (b->in_left < PG_HEADER) {
			return 0;
		}
		if (!stage(b))
			return 0;
	}
	return 0;
}

static long pg_step(u32 i, struct feed *f)
{
	struct backend *b = f->b;
	if (!skip_bytes(b))
		return 1;
	if (!b->head_len) {
		u32 whole = pg_whole(b);
		if (whole == ~0U)
			return 1;
		if (whole) {
			b->skip = whole;
			return 0;
		}
	}
	if (b->head_len < PG_HEADER) {
		if (!gather(b, PG_HEADER))
			return 1;
		b->head_want = pg_header(b, HEAD);
		if (!b->head_want)
			return pg_confused(b);
	}
	if (b->head_len < b->head_want && !gather(b, b->head_want))
		return 1;
	pg_message(b, HEAD, HEAD + b->head_len);
	b->skip = PG_HEADER + b->body - b->head_len;
	b->head_len = 0;
	return 0;
}

#define AT_ONCE 8 /* messages of a request that pg_at_once() looks at */

/* The usual case at a fraction of the price: a chunk is one whole request of a few messages.
 * False, with nothing changed, if it is not; the time is that of instructions that are not in
 * the CPU's cache, so that few of them count more than few steps. */
static __noinline bool pg_at_once(struct backend *b, u64 buf, u32 len)
{
	if (!b || len < PG_HEADER)
		return false;
	u32 n = len < STAGED ? len : STAGED;
	barrier_var(n);
	if (bpf_probe_read_user(&b->bytes[STAGE], n & (2 * STAGED - 1), (void *)buf))
		return false;
	u32 at = 0, bound = b->bound, unnamed = b->unnamed, request = b->request;
	for (int i = 0; i < AT_ONCE; i++) {
		if (at > STAGED)
			return false;
		u64 head = eight_bytes(b, STAGE + at);
		u32 size = __builtin_bswap32(head >> 8);
		u8 type = head, name = head >> 40;
		u32 end = at + 1 + size;
		if (size < 4 || size > PG_MAX_MESSAGE)
			return false;
		if (type == 'Q') {
			if (at || end != len)
				return false;
			b->understood = 1;
			push_request(b, request_of(classify(b, STAGE + PG_HEADER, STAGE + n)));
			return true;
		}
		if (end > n)
			return false;
		switch (type) {
		case 'P':
			if (name)
				return false;
			unnamed = classify(b, STAGE + at + PG_HEADER + 1, STAGE + end);
			break;
		case 'B':
			if (name) /* the portal's */
				return false;
			bound = name_hash(b, STAGE + at + PG_HEADER + 1, STAGE + end);
			bound = bound ? recall(bound) : unnamed;
			break;
		case 'E':
			if (!(request & HAS_STATEMENT))
				request = bound | HAS_STATEMENT;
			break;
		case 'D':
			break;
		case 'S':
			if (end != len)
				return false;
			b->understood = 1;
			b->bound = bound;
			b->unnamed = unnamed;
			push_request(b, request | FROM_SYNC);
			b->request = 0;
			b->request_open = 0;
			return true;
		default:
			return false;
		}
		at = end;
	}
	return false;
}

/* Bytes the client sent. */
static __always_inline void pg_received(struct backend *b, u64 buf, u32 len)
{
	if (b->conn != CONN_READY)
		return;
	if (!b->head_len && !b->skip && pg_at_once(b, buf, len))
		return;
	struct feed f = { .b = b };
	feed(b, buf, len);
	bpf_loop(1 << 14, pg_step, &f, 0);
}

/* The transaction status in the ReadyForQuery that sent bytes end with, or 0 if they do not: it
 * is the last of its send, whose buffer is contiguous even if the kernel took it in several parts. */
static __always_inline u8 pg_ends_ready(u64 buf, u32 len)
{
	u8 end[6] = {};
	bpf_probe_read_user(end, sizeof(end), (void *)(buf + len - sizeof(end)));
	return end[0] == 'Z' && !end[1] && !end[2] && !end[3] && end[4] == 5 ? end[5] : 0;
}

#define PG_IDLE 'I' /* transaction status: in none; else T or, after an error in it, E */

/* The server sent a ReadyForQuery with this transaction status. */
static __always_inline void pg_ready(struct backend *b, struct task_struct *task, u8 status, u64 now)
{
	b->answered = 1;
	b->in_transaction = status != PG_IDLE;
	if (b->conn != CONN_READY || !b->busy) {
		if (b->conn == CONN_LOGIN) {
			b->conn = CONN_READY;
			forget_requests(b);
		} else if (b->conn == CONN_LOST) {
			lose(b->server, LOST_PROTOCOL);
		}
		b->slept = 0;
		b->busy = 0;
		return;
	}
	advance(b, task, now);
	if (b->pending_tail != b->pending_head) {
		u8 request = b->pending[b->pending_head & (PENDING - 1)];
		b->pending_head++;
		if (request & HAS_STATEMENT)
			observe(b, task, request, now, false);
	}
	b->slept = 0;
	b->busy = 0;
	/* If the next one is here already, it begins where this one ends: its duration is the time that
	 * the server took for it, as its phases are. What it waited before is told apart. */
	u64 arrival = b->pending_tail != b->pending_head ? b->arrival[b->pending_head & (PENDING - 1)] : 0;
	if (b->pending_tail != b->pending_head || b->request_open)
		begin(b, task, now);
	if (arrival && arrival < now)
		b->behind = now - arrival;
}

/* The server found nothing to read: what is received is answered, or not yet complete. */
static __always_inline void pg_drained(struct backend *b)
{
	if (b->answered) {
		if (b->conn == CONN_LOST)
			b->conn = CONN_READY;
		if (b->pending_tail != b->pending_head) {
			/* Requests the server took for no requests, such as a Sync during COPY. */
			b->pending_head = b->pending_tail;
			b->busy = b->request_open;
		}
		return;
	}
	/* Messages without an answer of their own, such as Terminate. */
	if (b->pending_tail == b->pending_head && !b->request_open && !b->head_len && !b->skip)
		b->busy = 0;
}

#endif
