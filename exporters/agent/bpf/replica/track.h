/* Connections of a storage backend's wire, followed message by message: which operation is
 * under way on which connection, how long each took, and which replica acknowledged a
 * write last. The wire's format is behind wire.h; where the bytes come from is behind
 * stream_feed and stream_preview (sockets.h calls them).
 *
 * A stream (one direction of a connection) is adopted only at a message's first byte and
 * given up at the first byte that cannot belong to the wire; what was under way then is
 * counted as lost by user space, never guessed. All times are CLOCK_MONOTONIC.
 */
#ifndef __PLUMBLINE_TRACK_H__
#define __PLUMBLINE_TRACK_H__

#include "../backups.h"
#include "../followed.h"
#include "../operation.h"
#include "../socket.h"
#include "../trace.h"
#include "../uapi.h"
#include "wire.h"

/* A time and a peer in one word, for compare-and-swap: 4.9 hours and a million peers. */
#define PEER_BITS 20
#define PEER_MASK ((1 << PEER_BITS) - 1)

/* How many responses are remembered that came before their request was seen. */
#define EARLY_RESPONSES 8

/* What a followed process is. */
enum role {
	ROLE_ENGINE,
	ROLE_REPLICA,
};

/* From where an operation is seen. */
enum view {
	VIEW_REQUEST,  /* the engine's side of a replica: request sent to response read */
	VIEW_SERVICE,  /* the replica's side: request read to response written */
	VIEW_FRONTEND, /* the engine's side of its user: request read to response written */
};

/* Indices of the map events; Go's names for them are in types.go. */
enum event {
	EVENT_RESYNC,             /* a stream in step met bytes that are no message */
	EVENT_UNMATCHED,          /* a response without a request */
	EVENT_UNRECOGNISED,       /* a read from a data connection that begins with no message */
	EVENT_LOST_CONNECTION,    /* map connections full */
	EVENT_LOST_REQUEST,       /* map inflight full */
	EVENT_LOST_SERIES,        /* map latencies or last_acks full */
	EVENT_LOST_GROUP,         /* map writes full */
	EVENT_LOST_FAULT,         /* the program's memory could not be read */
	EVENT_LOST_PROCESS_EVENT, /* ring process_events full; the next scan makes up for it */
	EVENT_OVERLAP,            /* two writes to one extent at a time: last to acknowledge unknown */
	EVENT_OTHER_PEER,         /* map peers full: counted under peer 0 */
	EVENTS,
};

/* A process whose system calls are read, by its thread group id. User space writes these. */
struct process {
	u32 slot;      /* its name in all other maps; never used twice */
	u32 peers;     /* replicas an engine is connected to; 0 if not known */
	u16 data_port; /* where a replica listens for data, 0 for a unix socket */
	u8 role;
	u8 unseen_frontend; /* the engine's user does not speak this wire */
};

enum stream_state {
	STREAM_OUT,
	STREAM_TENTATIVE, /* the bytes so far may be a header's beginning */
	STREAM_IN,
};

struct stream {
	u32 skip;  /* payload bytes still to come */
	u32 have;  /* header bytes collected */
	u32 moved; /* bytes seen, understood or not; wraps around */
	u8 state;
	u8 handled_by; /* who has seen the call at hand; see ../backups.h */
	u8 dialect;    /* the messages' so far, as in wire.h; 0 until one has it */
	u8 pad[1];
	struct wire_message message;
	u8 header[WIRE_HEADER_CAPACITY];
};

struct connection {
	u32 slot;
	u32 peer;
	u32 id; /* never used twice; a new one when a stream falls out of step */
	u8 view;
	u8 fresh;   /* no request recorded under this id yet */
	u8 missed;  /* bytes went by that were not understood */
	u8 sending; /* the requests in the buffer of the send under way are noted */
	u8 ended;   /* no more answers can come: user space shall forget it */
	u8 pad[3];
	u16 local_port, remote_port; /* 0 on a unix socket */
	u32 early_count;             /* early responses since the latest send's end; over EARLY_RESPONSES: some had no room */
	u64 first;                   /* the first request recorded under this id */
	/* Responses without a request since the latest send's end, by their id + 1; 0 for none. See
	 * early_responses.h. */
	u64 early_responses[EARLY_RESPONSES];
	/* When the latest operation began that was answered: reads, and all others. */
	u64 answered_read, answered_write;
	struct stream rx, tx;
};

struct operation_key {
	u32 connection;
	u32 pad;
	u64 id;
};

struct operation {
	u64 start;
	u64 offset;
	u32 size;
	u32 slot;
	u32 peer;
	u8 view;
	u8 op;
	u8 pad[2];
};

/* The other end of an engine's connection, or a replica's own address: the data port. */
struct peer_key {
	u32 slot;
	u16 family;
	u16 port;
	u8 address[16];
};

struct latency_key {
	u32 slot;
	u32 peer;
	u8 view;
	u8 op;
	u8 pad[2];
};

struct write_key {
	u32 slot;
	u32 size;
	u64 offset;
};

/* One write of the volume while its copies are under way to the replicas. */
struct write {
	u64 start;
	u64 last;     /* the latest acknowledgement: ns after start << PEER_BITS | the peer */
	u64 previous; /* the one before it */
	u32 users;    /* requests of the frontend for this very extent now */
	u32 acked;
	u8 overlap;
	u8 pad[7];
};

struct ack_key {
	u32 slot;
	u32 peer;
};

struct acks {
	u64 last;    /* how many writes waited for this peer last */
	u64 wait_ns; /* how long these waited for this peer alone, ns */
};

struct process_event {
	u32 tgid;
	u32 exited;
};

/* Scratch memory, one slot for each program that needs some: the kernel runs a program once
 * at a time on a CPU, even if a task is preempted within it, but may run another one in between. */
enum scratch_slot {
	SCRATCH_SENDING,
	SCRATCH_SENDING_PACKET,
	SCRATCH_SENDING_LOCAL,
	SCRATCH_SENT,
	SCRATCH_SENT_INET6,
	SCRATCH_SENT_UNIX,
	SCRATCH_RECEIVED,
	SCRATCH_RECEIVED_INET6,
	SCRATCH_RECEIVED_UNIX,
	SCRATCH_SLOTS,
};

/* Sizes are the kernel's memory. Those given as 1 depend on the number of volumes and are set
 * by user space before loading (exporters/agent/replica/sizes.go). */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct process);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64); /* the socket's inode number, which a reconnect changes */
	__type(value, struct connection);
} connections SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct operation_key);
	__type(value, struct operation);
} inflight SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct peer_key);
	__type(value, u32);
} peers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* 2 KB each, and few nodes have as many as may be */
	__uint(max_entries, 1);
	__type(key, struct latency_key);
	__type(value, struct latency);
} latencies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct write_key);
	__type(value, struct write);
} writes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct ack_key);
	__type(value, struct acks);
} last_acks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENTS);
	__type(key, u32);
	__type(value, u64);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCH_SLOTS *(1 + MAX_BACKUPS)); /* backup programs have slots of their own */
	__type(key, u32);
	__type(value, struct connection);
} scratch SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} process_events SEC(".maps");

static __always_inline u32 scratch_slot_of(u32 scratch_slot, u32 rank)
{
	return scratch_slot + rank * SCRATCH_SLOTS;
}

u32 last_connection; /* the latest connection id handed out */
u32 last_peer;       /* the latest peer number handed out */

static __always_inline void count(u32 event)
{
	u64 *n = bpf_map_lookup_elem(&events, &event);

	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline struct process *process_of(u32 tgid)
{
	return maybe_followed(tgid, FOLLOWS_REPLICAS) ? bpf_map_lookup_elem(&processes, &tgid) : 0;
}

/* The current task's process if it is followed. */
static __always_inline struct process *process_now(void)
{
	return process_of(tgid_of(bpf_get_current_task_btf()));
}

/* The number of the peer, a new one at its first sight, or 0 for "one too many". */
static __noinline u32 peer_number(struct sock *sk, u32 slot, u32 view)
{
	struct peer_key key = {.slot = slot};
	bool own = view == VIEW_SERVICE;

	if (view == VIEW_FRONTEND)
		return 0;
	key.family = read_field(sk, __sk_common.skc_family);
	if (key.family == AF_INET) {
		u32 a = own ? read_field(sk, __sk_common.skc_rcv_saddr) : read_field(sk, __sk_common.skc_daddr);
		__builtin_memcpy(key.address, &a, sizeof(a));
	} else if (key.family == AF_INET6) {
		struct in6_addr a = own ? read_field(sk, __sk_common.skc_v6_rcv_saddr) : read_field(sk, __sk_common.skc_v6_daddr);
		__builtin_memcpy(key.address, &a, sizeof(a));
	}
	if (key.family != AF_UNIX)
		key.port = own ? read_field(sk, __sk_common.skc_num) : bpf_ntohs(read_field(sk, __sk_common.skc_dport));

	u32 *known = bpf_map_lookup_elem(&peers, &key);
	if (known)
		return *known;
	u32 number = __sync_fetch_and_add(&last_peer, 1) + 1;
	if (!bpf_map_update_elem(&peers, &key, &number, BPF_NOEXIST))
		return number;
	known = bpf_map_lookup_elem(&peers, &key); /* another CPU was faster, or the map is full */
	if (known)
		return *known;
	count(EVENT_OTHER_PEER);
	return 0;
}

static __always_inline void connection_renumber(struct connection *c)
{
	c->id = __sync_fetch_and_add(&last_connection, 1) + 1;
	c->fresh = 1;
	c->missed = 0;
}

static __noinline struct connection *connection_open(u64 inode, struct sock *sk, u32 slot, u32 view, u32 scratch_slot)
{
	struct connection *c = bpf_map_lookup_elem(&scratch, &scratch_slot);

	if (!c)
		return 0;
	__builtin_memset(c, 0, sizeof(*c));
	c->slot = slot;
	c->view = view;
	c->peer = peer_number(sk, slot, view);
	if (read_field(sk, __sk_common.skc_family) != AF_UNIX) {
		c->local_port = read_field(sk, __sk_common.skc_num);
		c->remote_port = bpf_ntohs(read_field(sk, __sk_common.skc_dport));
	}
	connection_renumber(c);
	if (bpf_map_update_elem(&connections, &inode, c, BPF_NOEXIST))
		count(EVENT_LOST_CONNECTION);
	return bpf_map_lookup_elem(&connections, &inode);
}

/* A write leaves for one replica, or (frontend) arrives at the engine. */
static __always_inline void write_begins(struct operation *r, bool frontend)
{
	struct write_key key = {r->slot, r->size, r->offset};
	struct write *w = bpf_map_lookup_elem(&writes, &key);

	if (!w) {
		struct write fresh = {.start = r->start};

		if ((int)bpf_map_update_elem(&writes, &key, &fresh, BPF_NOEXIST) == -E2BIG)
			count(EVENT_LOST_GROUP);
		w = bpf_map_lookup_elem(&writes, &key);
		if (!w)
			return;
	}
	if (frontend && __sync_fetch_and_add(&w->users, 1))
		w->overlap = 1;
}

static __always_inline void write_done(struct write_key *key, struct write *w)
{
	struct ack_key peer = {.slot = key->slot, .peer = w->last & PEER_MASK};
	struct acks *acks = bpf_map_lookup_elem(&last_acks, &peer);

	if (!acks) {
		struct acks none = {};

		bpf_map_update_elem(&last_acks, &peer, &none, BPF_NOEXIST);
		acks = bpf_map_lookup_elem(&last_acks, &peer);
		if (!acks) {
			count(EVENT_LOST_SERIES);
			return;
		}
	}
	__sync_fetch_and_add(&acks->last, 1);
	if (w->previous)
		__sync_fetch_and_add(&acks->wait_ns, (w->last >> PEER_BITS) - (w->previous >> PEER_BITS));
}

/* One replica has acknowledged its copy. */
static __always_inline void write_acknowledged(struct operation *r, u64 now, u32 expected)
{
	struct write_key key = {r->slot, r->size, r->offset};
	struct write *w = bpf_map_lookup_elem(&writes, &key);

	if (!w)
		return;
	u64 ns = now - w->start;
	if (ns >> (64 - PEER_BITS))
		ns = ~0ULL >> PEER_BITS; /* a write can hang for longer than fits */
	u64 ack = ns << PEER_BITS | (r->peer & PEER_MASK);
	for (int i = 0; i < 4; i++) {
		u64 last = w->last;

		if (last >= ack) {
			if (w->previous < ack)
				w->previous = ack;
			break;
		}
		if (__sync_val_compare_and_swap(&w->last, last, ack) == last) {
			w->previous = last;
			break;
		}
	}
	u32 acked = __sync_fetch_and_add(&w->acked, 1) + 1;
	/* Without a frontend that reports the write's end, it is when all replicas answered. */
	if (expected && !w->users && acked >= expected) {
		write_done(&key, w);
		bpf_map_delete_elem(&writes, &key);
	}
}

/* The engine has answered its user. */
static __always_inline void write_answered(struct operation *r)
{
	struct write_key key = {r->slot, r->size, r->offset};
	struct write *w = bpf_map_lookup_elem(&writes, &key);

	if (!w) {
		/* Another write to the extent, on another CPU, was over in the moment this one began. */
		count(EVENT_OVERLAP);
		return;
	}
	/* One that began later is another write's: this one's own was over in the moment it began, as above. */
	if (w->overlap || w->start > r->start)
		count(EVENT_OVERLAP);
	else if (w->last)
		write_done(&key, w);
	if (__sync_fetch_and_add(&w->users, -1) <= 1)
		bpf_map_delete_elem(&writes, &key);
}

#include "early_responses.h"

/* What the loop over a buffer works on. */
struct cursor {
	struct connection *connection;
	struct stream *stream;
	struct process *process;
	u64 position; /* in user memory */
	u64 now;
	u32 left;
	u8 preview; /* a send that has not happened yet: only note the requests in it */
	u8 request; /* this stream carries requests, not responses */
};

static __noinline void operation_begins(struct cursor *u)
{
	struct connection *c = u->connection;
	struct wire_message *m = &u->stream->message;
	struct operation_key key = {.connection = c->id, .id = m->id};
	struct operation r = {
		.start = u->now,
		.offset = m->offset,
		.size = m->size,
		.slot = c->slot,
		.peer = c->peer,
		.view = c->view,
		.op = m->op,
	};

	if (c->early_count > EARLY_RESPONSES) {
		/* Its answer may have been among those that were not remembered. */
		if (!c->fresh)
			count(EVENT_LOST_REQUEST);
		return;
	}
	if (c->fresh) {
		c->first = m->id;
		c->fresh = 0;
	}
	/* An int: before Linux 6.4 the upper half of what the kernel returns is not the sign's. */
	int err = bpf_map_update_elem(&inflight, &key, &r, BPF_NOEXIST);
	/* It is there already when a send is retried: the first try counts. */
	if (err == -EEXIST)
		return;
	if (err) {
		count(EVENT_LOST_REQUEST);
		return;
	}
	if (c->early_count && early_response_take(c, m->id)) {
		/* Answered before its send was seen: it is over. */
		bpf_map_delete_elem(&inflight, &key);
		return;
	}
	if (m->op != OP_WRITE)
		return;
	if (c->view == VIEW_FRONTEND)
		write_begins(&r, true);
	else if (c->view == VIEW_REQUEST && u->process->unseen_frontend)
		write_begins(&r, false);
}

/* Reports an operation that has ended. */
static __noinline void trace_operation(struct cursor *u, struct operation *r)
{
	struct connection *c = u->connection;
	struct wire_message *m = &u->stream->message;
	struct trace_event *e = trace_begin(TRACE_OPERATION, r->start, u->now);
	u64 task = bpf_get_current_pid_tgid();

	if (!e)
		return;
	e->request = m->id;
	e->offset = r->offset;
	e->size = r->size;
	e->owner = r->slot;
	e->pid = task;
	e->tgid = task >> 32;
	e->local_port = c->local_port;
	e->remote_port = c->remote_port;
	e->peer = r->peer;
	e->subtype = r->op;
	e->reason_or_view = r->view;
	e->flags = m->failed ? TRACE_FAILED : 0;
	trace_submit(e);
}

static __noinline void operation_ends(struct cursor *u)
{
	struct connection *c = u->connection;
	struct wire_message *m = &u->stream->message;
	struct operation_key key = {.connection = c->id, .id = m->id};
	struct operation *r = bpf_map_lookup_elem(&inflight, &key);

	if (!r) {
		if (c->view == VIEW_REQUEST) {
			early_response_put(c, m->id);
			r = bpf_map_lookup_elem(&inflight, &key);
		}
		if (!r) {
			/* Answers to what was sent before the stream was in step are nobody's loss. */
			if (!c->fresh && !wire_before(m->id, c->first))
				count(EVENT_UNMATCHED);
			return;
		}
		/* Its send was seen in this very moment; one of the two sees the other. */
		if (!early_response_take(c, m->id))
			return;
	}
	if (tracing && r->op != OP_PING)
		trace_operation(u, r);
	if (r->op == OP_READ && c->answered_read < r->start)
		c->answered_read = r->start;
	else if (r->op != OP_READ && r->op != OP_PING && c->answered_write < r->start)
		c->answered_write = r->start;
	struct latency_key latency_key = {.slot = r->slot, .peer = r->peer, .view = r->view, .op = r->op};
	struct latency *s = bpf_map_lookup_elem(&latencies, &latency_key);
	if (!s) {
		bpf_map_update_elem(&latencies, &latency_key, &no_latency, BPF_NOEXIST);
		s = bpf_map_lookup_elem(&latencies, &latency_key);
	}
	if (s) {
		latency_add(s, u->now - r->start, r->op == OP_READ ? m->payload : r->size, m->failed);
	} else {
		count(EVENT_LOST_SERIES);
	}
	if (r->op == OP_WRITE) {
		if (r->view == VIEW_FRONTEND)
			write_answered(r);
		else if (r->view == VIEW_REQUEST && !m->failed)
			write_acknowledged(r, u->now, u->process->peers);
	}
	bpf_map_delete_elem(&inflight, &key);
}

static __always_inline void message_ends(struct cursor *u)
{
	u8 kind = u->stream->message.kind;

	if (u->preview || kind == WIRE_OTHER)
		return;
	if (kind == WIRE_RESPONSE && !u->request)
		operation_ends(u);
	else if (kind == WIRE_REQUEST && u->request && u->connection->view != VIEW_REQUEST)
		operation_begins(u);
}

static __always_inline void stream_lose_sync(struct cursor *u)
{
	struct stream *s = u->stream;

	if (!u->preview) {
		if (s->state == STREAM_IN) {
			count(EVENT_RESYNC);
			connection_renumber(u->connection);
		} else {
			u->connection->missed = 1;
		}
	}
	s->state = STREAM_OUT;
	s->have = 0;
	s->skip = 0;
	s->dialect = 0;
}

/* Does the message speak as those before it on this stream? */
static __always_inline bool stream_keeps(struct stream *s)
{
	u8 dialect = s->message.dialect;

	if (!s->dialect)
		s->dialect = dialect;
	return !dialect || dialect == s->dialect;
}

/* One step through a buffer: some payload, or some header. Returns 1 at its end. */
static long stream_step(u32 i, struct cursor *u)
{
	struct stream *s = u->stream;
	u32 left = u->left;

	if (!left)
		return 1;
	if (s->skip) {
		u32 n = s->skip < left ? s->skip : left;

		s->skip -= n;
		u->left = left - n;
		u->position += n;
		if (!s->skip)
			message_ends(u);
		return 0;
	}

	u32 have = s->have;
	if (have >= WIRE_HEADER_MAX)
		return 1; /* cannot be */
	u32 need = wire_need(s->header, have);
	u32 n = need - have;
	if (n > left)
		n = left;
	if (!n || n > WIRE_HEADER_MAX)
		return 1; /* cannot be */
	have &= WIRE_HEADER_CAPACITY / 2 - 1;
	n &= WIRE_HEADER_CAPACITY / 2 - 1;
	if (bpf_probe_read_user(s->header + have, n, (void *)u->position)) {
		if (!u->preview)
			count(EVENT_LOST_FAULT);
		stream_lose_sync(u);
		return 1;
	}
	u->left = left - n;
	u->position += n;
	have += n;
	s->have = have;
	if (s->state != STREAM_IN && !wire_begins(s->header, have)) {
		stream_lose_sync(u);
		return 1;
	}
	if (have < wire_need(s->header, have))
		return 0;
	if (wire_parse(s->header, &s->message) || !stream_keeps(s)) {
		stream_lose_sync(u);
		return 1;
	}
	if (s->state != STREAM_IN) {
		s->state = STREAM_IN;
		/* Whatever was recorded while this direction could not be read is void. */
		if (!u->preview && u->connection->missed)
			connection_renumber(u->connection);
	}
	s->have = 0;
	s->skip = s->message.payload;
	if (u->preview && s->message.kind == WIRE_REQUEST)
		operation_begins(u);
	if (!s->skip)
		message_ends(u);
	return 0;
}

/* Takes `left` bytes of user memory at `position` as the next ones of u->stream. */
static __always_inline void stream_feed(struct cursor *u)
{
	struct stream *s = u->stream;

	s->moved += u->left;
	if (s->state == STREAM_OUT) {
		s->state = STREAM_TENTATIVE;
		s->have = 0;
		s->skip = 0;
	}
	/* Two steps a message; Go reads up to 8 KiB of headers at once. */
	bpf_loop(4096, stream_step, u, 0);
	if (u->left && s->state != STREAM_OUT)
		stream_lose_sync(u);
}

/* Notes the requests in a buffer about to be sent, on a copy of the stream. */
static __always_inline void stream_preview(struct cursor *u, u32 scratch_slot)
{
	struct connection *copy = bpf_map_lookup_elem(&scratch, &scratch_slot);

	if (!copy)
		return;
	__builtin_memcpy(&copy->tx, u->stream, sizeof(copy->tx));
	u->stream = &copy->tx;
	u->preview = 1;
	stream_feed(u);
}

/* Puts these types into the object's type information. Go's types are generated from it. */
const struct process_event *unused_process_event __attribute__((unused));
const enum role *unused_role __attribute__((unused));
const enum view *unused_view __attribute__((unused));
const enum event *unused_event __attribute__((unused));
const enum wire_op *unused_op __attribute__((unused));

#endif
