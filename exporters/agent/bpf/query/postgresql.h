/* PostgreSQL's wire protocol, version 3, as far as it shows where requests begin and end:
 * https://www.postgresql.org/docs/current/protocol-message-formats.html
 *
 * A request is a Query message, a FunctionCall message, or everything up to a Sync. Each is answered by one
 * ReadyForQuery, sent after the commit and its WAL flush. Requests without Query or Execute (a Parse, a Describe)
 * are not statements and are left out. */
#ifndef __QUERY_POSTGRESQL_H__
#define __QUERY_POSTGRESQL_H__

#include "clock.h"
#include "feed.h"
#include "prepared.h"
#include "sql.h"

#define PG_HEADER 5
#define PG_MAX_MESSAGE 0x3fffffff
#define PENDING 64                  /* requests in flight remembered per connection; a power of two */
#define PG_FROM_SYNC REQUEST_MARKED /* of a request: it ended with a Sync */
/* A FunctionCall, as for large objects. Other requests of several statements end with a Sync. */
#define PG_FUNCTION_CALL (OTHER | REQUEST_HAS_STATEMENT | REQUEST_SEVERAL)

struct pg_state {
	u8 unnamed;      /* command of the unnamed prepared statement */
	u8 ready_sent;   /* status in the ready-for-query on its way to the socket, or 0 */
	u8 request_open; /* messages since the last Sync */
	u8 reopened;     /* the request under assembly came before, see reopen_request() */
	u32 pending_head, pending_tail;
	u8 pending[PENDING];
	u64 arrival[PENDING]; /* when it was read, if others were before it; else 0 */
};

_Static_assert(sizeof(struct pg_state) <= PROTOCOL_STATE_BYTES, "a connection has less space");

static __always_inline struct pg_state *pg(struct connection *c)
{
	return (struct pg_state *)c->own;
}

/* A process for each connection, forked by the main one, which take each other's signals. */
#define pg_traits (TRAIT_PROCESS_PER_CONNECTION | TRAIT_WAKES_BY_SIGNAL)

static __always_inline int pg_opened(struct followed_task *followed, struct connection *c)
{
	c->conn = followed->adopted ? CONN_READY : CONN_LOGIN;
	return 0;
}

/* The request that is being worked on, or the part of it that has come. */
static __always_inline u8 pg_current(struct connection *c)
{
	if (pg(c)->pending_tail != pg(c)->pending_head)
		return pg(c)->pending[pg(c)->pending_head & (PENDING - 1)];
	return c->request;
}

static __always_inline void push_request(struct connection *c, u8 request)
{
	if (pg(c)->pending_tail - pg(c)->pending_head >= PENDING) {
		count_loss(c->server, LOST_PIPELINE);
		return;
	}
	u32 at = pg(c)->pending_tail & (PENDING - 1);
	pg(c)->pending[at] = request;
	if (!pg(c)->reopened)
		pg(c)->arrival[at] = pg(c)->pending_tail == pg(c)->pending_head ? 0 : bpf_ktime_get_ns();
	pg(c)->reopened = 0;
	pg(c)->pending_tail++;
}

/* COPY data from the client: the server ignores the Sync that came right behind the Execute,
 * so that the request goes on to the Sync behind the data. */
static __always_inline void reopen_request(struct connection *c)
{
	if (pg(c)->pending_tail == pg(c)->pending_head)
		return;
	u8 request = pg(c)->pending[(pg(c)->pending_tail - 1) & (PENDING - 1)];
	if (!(request & PG_FROM_SYNC))
		return;
	pg(c)->pending_tail--;
	c->request = request & ~PG_FROM_SYNC;
	pg(c)->request_open = 1;
	pg(c)->reopened = 1;
}

static __always_inline void forget_requests(struct connection *c)
{
	pg(c)->pending_head = pg(c)->pending_tail;
	c->request = 0;
	pg(c)->request_open = 0;
	pg(c)->reopened = 0;
	c->head_len = 0;
	c->skip = 0;
}

/* A zero-terminated name in bytes[]. */
struct name {
	struct connection *c;
	u32 from, end;
	u32 pos; /* behind what has been passed over */
};

static long name_byte(u32 i, struct name *n)
{
	u32 pos = n->from + i;
	if (pos >= n->end || pos >= 2 * STAGE_OFFSET)
		return 1;
	n->pos = pos + 1;
	return n->c->bytes[pos] == 0;
}

/* Passes over a name and its zero. */
static __always_inline void skip_name(struct name *n)
{
	if (n->pos < 2 * STAGE_OFFSET && n->c->bytes[n->pos] == 0) {
		n->pos++;
	} else {
		n->from = n->pos;
		bpf_loop(MAX_BODY, name_byte, n, 0);
	}
}

#define ONES 0x0101010101010101ULL
#define HIGHS 0x8080808080808080ULL

/* Hash of the name at pos, its first 64 bytes at most; 0 if it is empty. */
__noinline u32 name_hash(struct connection *c, u32 pos, u32 end)
{
	if (!c)
		return 0;
	u64 hash = 0;
	for (int i = 0; i < 8; i++) {
		if (pos >= end)
			break;
		u64 text = eight_bytes(c, pos);
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

/* A request with one more execution. Several in one request are one statement, named after the first. A BEGIN ahead of
 * others gives its name to none: pgjdbc sends it with a transaction's first statement. */
static __always_inline u8 pg_executed(u8 request, u8 bound)
{
	if (!(request & REQUEST_HAS_STATEMENT) || request == (BEGIN | REQUEST_HAS_STATEMENT))
		return bound | REQUEST_HAS_STATEMENT;
	return request | REQUEST_SEVERAL;
}

/* A message whose header and first bytes are in bytes[from:end]. */
__noinline int pg_message(struct connection *c, u32 from, u32 end)
{
	if (!c || from > STAGE_OFFSET + STAGE_BYTES)
		return 0;
	c->understood = 1;
	struct name n = {.c = c, .pos = from + PG_HEADER, .end = end};
	u32 hash;
	switch (c->bytes[from]) {
	case 'Q':
		push_request(c, request_of(classify(c, n.pos, end, GOES_ON)));
		break;
	case 'P':
		pg(c)->request_open = 1;
		hash = name_hash(c, n.pos, end);
		skip_name(&n);
		if (hash)
			remember(names_of_task(BPF_LOCAL_STORAGE_GET_F_CREATE), hash, classify(c, n.pos, end, GOES_ON));
		else
			pg(c)->unnamed = classify(c, n.pos, end, GOES_ON);
		break;
	case 'B':
		pg(c)->request_open = 1;
		skip_name(&n); /* the portal */
		hash = name_hash(c, n.pos, end);
		c->bound = hash ? recall(names_of_task(0), hash) : pg(c)->unnamed;
		break;
	case 'E':
		pg(c)->request_open = 1;
		c->request = pg_executed(c->request, c->bound);
		break;
	case 'C':
		pg(c)->request_open = 1;
		if (c->bytes[n.pos & (2 * STAGE_OFFSET - 1)] == 'S') {
			hash = name_hash(c, n.pos + 1, end);
			if (hash)
				forget_name(names_of_task(0), hash);
		}
		break;
	case 'F':
		push_request(c, PG_FUNCTION_CALL);
		break;
	case 'S':
		push_request(c, c->request | PG_FROM_SYNC);
		c->request = 0;
		pg(c)->request_open = 0;
		break;
	case 'd':
	case 'c':
	case 'f':
		reopen_request(c);
		break;
	}
	return 0;
}

/* Body bytes wanted of a message, or -1 if no client sends such a message. */
static __always_inline int pg_wanted(u8 type)
{
	switch (type) {
	case 'Q':
	case 'P':
	case 'B':
	case 'C':
		return MAX_BODY;
	case 'E':
	case 'S':
	case 'F':
	case 'D':
	case 'H':
	case 'X':
	case 'd':
	case 'c':
	case 'f':
	case 'p':
		return 0;
	}
	return -1;
}

/* Bytes to parse of the message with this header, header included, or 0 if no client
 * sends such a message. Leaves the body's length in c->body. */
static __always_inline u32 pg_header(struct connection *c, u32 at)
{
	if (at > STAGE_OFFSET + STAGE_BYTES)
		return 0;
	u8 *h = &c->bytes[at];
	u32 len = (u32)h[1] << 24 | (u32)h[2] << 16 | (u32)h[3] << 8 | h[4];
	int wanted = pg_wanted(h[0]);
	if (wanted < 0 || len < 4 || len > PG_MAX_MESSAGE)
		return 0;
	c->body = len - 4;
	return PG_HEADER + (c->body < (u32)wanted ? c->body : (u32)wanted);
}

static __always_inline long pg_confused(struct followed_task *followed, struct connection *c)
{
	c->conn = CONN_LOST;
	abandon(followed, bpf_get_current_task_btf(), bpf_ktime_get_ns());
	followed->current = 0;
	forget_requests(c);
	count_loss(c->server, LOST_PROTOCOL);
	return 1;
}

/* One message of those that have come as a whole, or at least as far as it is parsed;
 * 0 if the next one comes in parts. */
static __always_inline u32 pg_whole(struct followed_task *followed, struct connection *c)
{
	for (int i = 0; i < 2; i++) {
		u32 at = c->stage_at;
		if (at <= STAGE_BYTES && at + PG_HEADER <= c->staged) {
			u32 want = pg_header(c, STAGE_OFFSET + at);
			if (!want)
				return pg_confused(followed, c), ~0U;
			if (at + want <= c->staged) {
				pg_message(c, STAGE_OFFSET + at, STAGE_OFFSET + at + want);
				return PG_HEADER + c->body;
			}
			if (want > c->in_left)
				return 0;
		} else if (c->in_left < PG_HEADER) {
			return 0;
		}
		if (!stage(c))
			return 0;
	}
	return 0;
}

static long pg_step(u32 i, struct feed *f)
{
	struct connection *c = f->c;
	if (!skip_bytes(c))
		return 1;
	if (!c->head_len) {
		u32 whole = pg_whole(f->followed, c);
		if (whole == ~0U)
			return 1;
		if (whole) {
			c->skip = whole;
			return 0;
		}
	}
	if (c->head_len < PG_HEADER) {
		if (!gather(c, PG_HEADER))
			return 1;
		c->head_want = pg_header(c, HEAD_OFFSET);
		if (!c->head_want)
			return pg_confused(f->followed, c);
	}
	if (c->head_len < c->head_want && !gather(c, c->head_want))
		return 1;
	pg_message(c, HEAD_OFFSET, HEAD_OFFSET + c->head_len);
	c->skip = PG_HEADER + c->body - c->head_len;
	c->head_len = 0;
	return 0;
}

#define AT_ONCE 8 /* messages of a request that pg_at_once() parses */

/* The usual case at a fraction of the price: a chunk is one whole request of a few messages.
 * False, with nothing changed, if it is not; the time is that of instructions that are not in
 * the CPU's cache, so that few of them count more than few steps. */
static __noinline bool pg_at_once(struct connection *c, u64 buf, u32 len)
{
	if (!c || len < PG_HEADER)
		return false;
	u32 n = len < STAGE_BYTES ? len : STAGE_BYTES;
	barrier_var(n);
	if (bpf_probe_read_user(&c->bytes[STAGE_OFFSET], n & (2 * STAGE_BYTES - 1), (void *)buf))
		return false;
	u32 at = 0, bound = c->bound, unnamed = pg(c)->unnamed, request = c->request;
	for (int i = 0; i < AT_ONCE; i++) {
		if (at > STAGE_BYTES)
			return false;
		u64 head = eight_bytes(c, STAGE_OFFSET + at);
		u32 size = __builtin_bswap32(head >> 8);
		u8 type = head, name = head >> 40;
		u32 end = at + 1 + size;
		if (size < 4 || size > PG_MAX_MESSAGE)
			return false;
		if (type == 'Q') {
			if (at || end != len)
				return false;
			c->understood = 1;
			push_request(c, request_of(classify(c, STAGE_OFFSET + PG_HEADER, STAGE_OFFSET + n, GOES_ON)));
			return true;
		}
		if (end > n)
			return false;
		switch (type) {
		case 'P':
			if (name)
				return false;
			unnamed = classify(c, STAGE_OFFSET + at + PG_HEADER + 1, STAGE_OFFSET + end, GOES_ON);
			break;
		case 'B':
			if (name) /* the portal's */
				return false;
			bound = name_hash(c, STAGE_OFFSET + at + PG_HEADER + 1, STAGE_OFFSET + end);
			bound = bound ? recall(names_of_task(0), bound) : unnamed;
			break;
		case 'E':
			request = pg_executed(request, bound);
			break;
		case 'D':
			break;
		case 'S':
			if (end != len)
				return false;
			c->understood = 1;
			c->bound = bound;
			pg(c)->unnamed = unnamed;
			push_request(c, request | PG_FROM_SYNC);
			c->request = 0;
			pg(c)->request_open = 0;
			return true;
		default:
			return false;
		}
		at = end;
	}
	return false;
}

static __always_inline int pg_received(struct followed_task *followed, struct connection *c, struct names *names, u64 buf, u32 len)
{
	c->answered = 0;
	if (!followed->busy)
		begin(followed, bpf_get_current_task_btf(), bpf_ktime_get_ns());
	if (c->conn != CONN_READY)
		return 0;
	if (c->head_len || c->skip || !pg_at_once(c, buf, len)) {
		struct feed f = {.followed = followed, .c = c};
		feed(c, buf, len);
		bpf_loop(1 << 14, pg_step, &f, 0);
	}
	followed->current = pg_current(c);
	return 0;
}

#define PG_IDLE 'I' /* transaction status: in none; else T or, after an error in it, E */

/* PgBackendStatus, a process's status in shared memory (utils/backend_status.h there), from version 14 to 19 on
 * machines of 64 bits. The statuses are an array, and the texts that each points to are in arrays, too: from one to
 * the next all pointers of a kind are as far apart. */
#define PG_STATUS_PID 4
#define PG_STATUS_HOSTNAME 192
#define PG_STATUS_APPNAME 240
#define PG_STATUS_ACTIVITY 248
#define PG_STATUS_QUERY_ID 424
#define PG_MIN_NAME 64 /* NAMEDATALEN, which a build may raise */
#define PG_MAX_NAME 1024
#define PG_MIN_ACTIVITY 100 /* track_activity_query_size */
#define PG_MAX_ACTIVITY (1 << 20)
#define PG_STATUS_TRIES 16 /* statements at whose ends a process tries to find its status, until it is believed */

static __always_inline u64 pg_apart(u64 at, u32 size, u32 field)
{
	return user_word(at + size + field) - user_word(at + field);
}

/* Whether there is a status at this address, and another one behind it. */
__noinline u32 pg_is_status(u64 at, u32 size)
{
	u64 name = pg_apart(at, size, PG_STATUS_APPNAME), activity = pg_apart(at, size, PG_STATUS_ACTIVITY);
	if (name < PG_MIN_NAME || name > PG_MAX_NAME || name != pg_apart(at, size, PG_STATUS_HOSTNAME))
		return false;
	return activity >= PG_MIN_ACTIVITY && activity <= PG_MAX_ACTIVITY;
}

/* Returns where the current task has its status, or 0 if that is not known: what is there must be as it is laid out. A
 * neighbour's page may not be mapped in this process, so that both are tried, and what one process has found holds for
 * all. */
static __always_inline u64 pg_status_of(struct followed_task *followed)
{
	if (followed->status || followed->status_tries >= PG_STATUS_TRIES)
		return followed->status;
	u32 id = followed->server;
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	if (!s || !s->status)
		return 0;
	followed->status_tries++;
	u64 at = user_word(s->status);
	u32 size = s->status_size, pid = inner_pid(bpf_get_current_task_btf());
	if (!at || !pid || (u32)user_word(at + PG_STATUS_PID) != pid)
		return 0;
	if (!s->status_known && !pg_is_status(at, size) && !pg_is_status(at - size, size))
		return 0;
	s->status_known = 1;
	followed->status = at;
	return at;
}

/* Reads the identifier of the statement that ends: the server sets it while it parses or executes, and keeps it until
 * the next statement, also through function calls, which have none. */
__noinline int pg_read_query_id(struct followed_task *followed, u8 request)
{
	if (!followed)
		return 0;
	u64 status = pg_status_of(followed);
	followed->query_id = status && request != PG_FUNCTION_CALL ? user_word(status + PG_STATUS_QUERY_ID) : 0;
	if (!followed->query_id)
		count_loss(followed->server, status ? NO_ID : NO_ID_READ);
	return 0;
}

/* The server sent a ReadyForQuery with this transaction status. */
static __always_inline void pg_ready(struct followed_task *followed, struct connection *c, struct task_struct *task, u8 status, u64 now)
{
	struct pg_state *p = pg(c);
	c->answered = 1;
	followed->in_transaction = status != PG_IDLE;
	if (c->conn != CONN_READY || !followed->busy) {
		if (c->conn == CONN_LOGIN) {
			c->conn = CONN_READY;
			forget_requests(c);
		} else if (c->conn == CONN_LOST) {
			count_loss(c->server, LOST_PROTOCOL);
		}
		followed->slept = 0;
		followed->busy = 0;
		return;
	}
	advance(followed, task, now);
	if (p->pending_tail != p->pending_head) {
		u8 request = p->pending[p->pending_head & (PENDING - 1)];
		p->pending_head++;
		if (request & REQUEST_HAS_STATEMENT) {
			if (query_entries)
				pg_read_query_id(followed, request);
			observe(followed, task, request, now, false);
		}
	}
	followed->slept = 0;
	followed->busy = 0;
	/* If the next one is here already, it begins where this one ends: its duration is the time that the server
	 * took for it, as its phases are. Its wait before that is reported separately. */
	u64 arrival = p->pending_tail != p->pending_head ? p->arrival[p->pending_head & (PENDING - 1)] : 0;
	if (p->pending_tail != p->pending_head || p->request_open) {
		begin(followed, task, now);
		followed->current = pg_current(c);
	}
	if (arrival && arrival < now)
		followed->behind = now - arrival;
}

#define PG_MIN_TAG (PG_HEADER + 6)  /* bytes of a CommandComplete with the tag BEGIN */
#define PG_MAX_TAG (PG_HEADER + 40) /* longer than PostgreSQL has one */
#define PG_TAG_SEEN 12              /* bytes of a tag that are parsed, or of it and the ReadyForQuery behind it */

/* A request whose command its text has not shown, by the tag of the CommandComplete that ends there; of a failed WITH,
 * a select. Not static, so that the verifier goes through it once. */
__noinline u32 pg_tagged(struct connection *c, u64 end, u32 request)
{
	if (!c)
		return request;
	for (u32 size = PG_MIN_TAG; size <= PG_MAX_TAG && !(request & REQUEST_SEVERAL); size++) {
		u64 head = user_word(end - size);
		if ((u8)head != 'C' || __builtin_bswap32(head >> 8) != size - 1)
			continue;
		if (bpf_probe_read_user(&c->bytes[STAGE_OFFSET], PG_TAG_SEEN, (void *)(end - size + PG_HEADER)))
			break;
		return classify(c, STAGE_OFFSET, STAGE_OFFSET + PG_TAG_SEEN, 0) | (request & ~(REQUEST_COMMAND_BITS | REQUEST_UNKNOWN));
	}
	return request & REQUEST_COMMAND_BITS ? request & ~REQUEST_UNKNOWN : request;
}

/* A ReadyForQuery is the last of its send, whose buffer is contiguous even if the kernel took it in
 * several parts. */
static __always_inline int pg_wrote(struct followed_task *followed, struct connection *c, struct sock *sk, u64 buf, u32 len)
{
	struct pg_state *p = pg(c);
	u8 end[6] = {};
	bpf_probe_read_user(end, sizeof(end), (void *)(buf + len - sizeof(end)));
	if (end[0] != 'Z' || end[1] || end[2] || end[3] || end[4] != 5)
		return 0;
	p->ready_sent = end[5];
	u8 *request = &p->pending[p->pending_head & (PENDING - 1)];
	if (p->pending_tail != p->pending_head && *request & REQUEST_UNKNOWN)
		*request = pg_tagged(c, buf + len - sizeof(end), *request);
	return 0;
}

static __always_inline int pg_sent(struct followed_task *followed, struct connection *c, struct task_struct *task)
{
	u8 status = pg(c)->ready_sent;
	if (!status)
		return 0;
	pg(c)->ready_sent = 0;
	pg_ready(followed, c, task, status, bpf_ktime_get_ns());
	return 0;
}

/* What is received is answered, or not yet complete. */
static __always_inline int pg_drained(struct followed_task *followed, struct connection *c)
{
	struct pg_state *p = pg(c);
	if (c->answered && !c->unread) {
		if (c->conn == CONN_LOST)
			c->conn = CONN_READY;
		if (p->pending_tail != p->pending_head) {
			/* Requests the server took for no requests, such as a Sync during COPY. */
			p->pending_head = p->pending_tail;
			followed->busy = p->request_open;
			followed->current = pg_current(c);
		}
		return 0;
	}
	/* Messages without an answer of their own, such as Terminate. */
	if (p->pending_tail == p->pending_head && !p->request_open && !c->head_len && !c->skip)
		followed->busy = 0;
	return 0;
}

static __always_inline int pg_reads(struct followed_task *followed, struct connection *c, struct task_struct *task)
{
	return 0;
}

/* A process serves one connection all its life. */
static __always_inline int pg_turns(struct followed_task *followed, struct connection *c, struct task_struct *task, bool sends)
{
	return 0;
}

/* Classes of wait events, see wait_classes.h there. */
#define PG_WAIT_LOCK 0x03
#define PG_WAIT_IO 0x0a

/* A process that sleeps until its latch is set may, from version 18 on, wait for the end of a read that an I/O
 * worker does for it; shared memory shows that. With io_method=io_uring it waits for its own reads. */
static __always_inline u32 pg_waits(struct followed_task *followed, long nr)
{
	if (nr == NR_io_uring_enter)
		return PHASE_READ;
	if (!is_poll(nr))
		return PHASE_WAIT;
	u32 id = followed->server;
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	u64 at = 0;
	u32 event = 0;
	if (!s || !s->wait_event)
		return PHASE_WAIT;
	if (bpf_probe_read_user(&at, sizeof(at), (void *)s->wait_event) ||
		bpf_probe_read_user(&event, sizeof(event), (void *)at))
		return PHASE_WAIT;
	followed->lock_wait = event >> 24 == PG_WAIT_LOCK;
	return event >> 24 == PG_WAIT_IO ? PHASE_READ : PHASE_WAIT;
}

static __always_inline bool pg_rests(struct followed_task *followed, struct task_struct *task, long nr, u64 now)
{
	return false;
}

#endif
