/* Sessions of initiators with a target that is a program in user space, followed message by message by what the
 * program reads from and writes to its sockets: which command is under way on which session and how long each took,
 * from when the program has read the command's header to when it has written the answer's end.
 *
 * A session is known from its login, which has the target's name and the digests; of one that is older than the
 * programs neither is known. Then a direction is adopted at a call that begins with a message, and digests are found
 * by trying. It is given up at the first byte that cannot belong to a message: what was under way then is counted as
 * lost, never guessed.
 */
#ifndef __PLUMBLINE_USER_TARGET_H__
#define __PLUMBLINE_USER_TARGET_H__

#include "../backups.h"

/* Scratch memory: a slot for each program that needs some, and for each of its backup programs. */
enum user_target_scratch_slot {
	SCRATCH_RECEIVED,
	SCRATCH_RECEIVED_INET6,
	SCRATCH_SENT,
	SCRATCH_SENT_INET6,
	SCRATCH_SLOTS,
};
#define EXPORT_SCRATCH_SLOTS (SCRATCH_SLOTS * (1 + MAX_BACKUPS))

#include "fabric.h"
#include "../followed.h"
#include "../arch.h"
#include "../socket.h"
#include "login.h"
#include "message.h"

/* How many commands of a session may be under way; initiators have 128 or so. */
#define UNDER_WAY_MAX 1024

/* How many task management requests of a session may be. */
#define TASKS 4

/* After so many messages one after the other the digests are right. */
#define SURE 8

/* How many LUNs of a session whose login was not seen get a number before they have answered: a disk that hangs
 * when the agent starts. */
#define GUESSES 4

/* An answer without a command may be one to a command that was read before the programs knew the session; ns. */
#define UNSURE 90000000000ULL

/* Indices of the map user_target_events; Go's names for them are in user_target_types.go. */
enum user_target_event {
	USER_TARGET_RESYNC,       /* a direction in step met bytes that are no message, or a call that is not read */
	USER_TARGET_LOST_SESSION, /* map sessions full */
	USER_TARGET_LOST_FAULT,   /* the program's memory could not be read */
	USER_TARGET_EVENTS,
};

/* struct iovec and struct user_msghdr, as programs have them. */
struct user_segment {
	u64 position;
	u64 length;
};

struct user_message {
	u64 name;
	u64 name_length;
	u64 vector;
	u64 segments;
};

/* One direction of a session. */
struct direction {
	u32 skip;       /* bytes still to come of what follows the header */
	u32 lead;       /* of these, how many come before a login's text */
	u32 text;       /* and how many are the text */
	u32 understood; /* messages, one after the other */
	u8 have;        /* bytes of the header */
	u8 in;          /* it is known where messages begin */
	u8 handled_by;  /* who has seen the call at hand; see ../backups.h */
	u8 pad;
	struct message message;
	u8 header[HEADER_CAPACITY];
};

/* A task management request that has no answer yet. */
struct task {
	u64 since;
	u32 tag;
	u32 lun;
	u32 reference;
	u8 scope; /* enum task_scope; TASK_NONE if there is none here */
	u8 pad[3];
};

struct session {
	u64 since; /* when it was first seen, or fell out of step last; CLOCK_MONOTONIC, ns */
	u32 id;    /* never used twice */
	u32 next_task;
	u32 under_way; /* commands */
	u32 login_tag;
	u8 digests; /* enum digest: in force */
	u8 chosen;  /* enum digest: by the target's answers so far */
	u8 logging_in;
	u8 named; /* the target has accepted the login: target is its name */
	u8 whole; /* each command of it was seen */
	u8 guesses;
	u8 quiet; /* its commands are none for a disk */
	u8 pad;
	struct task tasks[TASKS];
	u8 local[SOCKADDR_MAX + 4], remote[SOCKADDR_MAX + 4]; /* struct sockaddr of both ends */
	struct direction rx, tx;
	char target[NQN_SIZE];
};

/* Takes the target's name from a login's text, where it ends with 0. */
static __noinline void take_name(struct session *s, struct login_text *t, u32 from)
{
	if (!s || !t)
		return;
	from &= LOGIN_TEXT;
	for (u32 i = 0; i < NQN_SIZE - 1; i++) {
		char c = t->text[from + i];

		s->target[i] = c;
		if (!c)
			return;
	}
	s->target[NQN_SIZE - 1] = 0;
}

/* Processes that are targets, by their process ids, and when each started, in clock ticks. User space writes it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} user_targets SEC(".maps");

/* Sockets that a target had when the agent began to follow it, by inode number: their logins may be over. User
 * space writes it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u8);
} older SEC(".maps");

/* By the socket's inode number, which a reconnect changes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* 1.3 KB each */
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, struct session);
} sessions SEC(".maps");

static const struct session no_session;

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, USER_TARGET_EVENTS);
	__type(key, u32);
	__type(value, u64);
} user_target_events SEC(".maps");

u32 last_session; /* the latest id handed out */

static __always_inline void count_user_target(u32 event)
{
	u64 *n = bpf_map_lookup_elem(&user_target_events, &event);

	if (n)
		__sync_fetch_and_add(n, 1);
}

/* Is the current task a target's? */
static __always_inline bool is_user_target_task(struct task_struct *task)
{
	u32 tgid = tgid_of(task);
	u64 *start = maybe_followed(tgid, OWN_FOLLOWER) ? bpf_map_lookup_elem(&user_targets, &tgid) : 0;

	return start && *start == task->group_leader->start_boottime / CLOCK_TICK;
}

static __always_inline bool is_user_target(void)
{
	return is_user_target_task(bpf_get_current_task_btf());
}

/* What the loop over a call's bytes works on: n bytes in user memory, in segments. */
struct cursor {
	struct session *session;
	struct direction *direction;
	u64 inode;
	u64 vector; /* of struct iovec, the next one */
	u64 position;
	u64 now;
	u32 segments;     /* left in the vector */
	u32 left;         /* of this segment */
	u32 total;        /* of the call */
	u32 scratch_slot; /* the program's */
	bool to_target;
};

static __always_inline void forward(struct cursor *u, u32 n)
{
	u->position += n;
	u->left -= n;
	u->total -= n;
}

/* Goes to the next segment; false if there is none. */
static __always_inline bool next_segment(struct cursor *u)
{
	struct user_segment v = {};

	if (!u->segments || bpf_probe_read_user(&v, sizeof(v), (void *)u->vector))
		return false;
	u->segments--;
	u->vector += sizeof(v);
	u->position = v.position;
	u->left = v.length < u->total ? v.length : u->total;
	return true;
}

/* Where a call's bytes are; false if it is none of those that targets make. */
static __always_inline bool call_bytes(struct cursor *u)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	struct user_message m = {};
	int nr = SYSCALL_NR(regs);

	if (IS_CALL(nr, readv) || IS_CALL(nr, writev)) {
		u->vector = ARG2(regs);
		u->segments = ARG3(regs);
		return true;
	}
	if (IS_CALL(nr, recvmsg) || IS_CALL(nr, sendmsg)) {
		if (bpf_probe_read_user(&m, sizeof(m), (void *)ARG2(regs)))
			return false;
		u->vector = m.vector;
		u->segments = m.segments;
		return true;
	}
	if (u->to_target ? !IS_CALL(nr, read) && !IS_CALL(nr, recvfrom) : !IS_CALL(nr, write) && !IS_CALL(nr, sendto))
		return false;
	u->position = ARG2(regs);
	u->left = u->total;
	return true;
}

/* Empty segments that a call may begin with. */
#define EMPTY_SEGMENTS 4

/* What begins at the cursor's place. */
enum beginning {
	BEGINS_NOTHING,
	BEGINS_MESSAGE,    /* a whole header that data hardly looks like */
	BEGINS_CONNECTION, /* what may be a connection's first message, whole or not */
};

static __always_inline enum beginning begins_at(struct cursor *u, struct message *m)
{
	u8 header[WIRE_HEADER_MAX] = {};

	for (u32 i = 0; i < EMPTY_SEGMENTS && !u->left; i++)
		if (!next_segment(u))
			return BEGINS_NOTHING;
	u32 n = u->left < WIRE_HEADER_MAX ? u->left : WIRE_HEADER_MAX;
	if (!n || bpf_probe_read_user(header, n, (void *)u->position))
		return BEGINS_NOTHING;
	bool whole = wire_need(header, n) <= n;
	if (whole && wire_parse(header, m, u->to_target))
		return BEGINS_NOTHING;
	if (u->to_target && wire_begins(header, n))
		return BEGINS_CONNECTION;
	return whole && !m->doubtful ? BEGINS_MESSAGE : BEGINS_NOTHING;
}

/* The address of one end, as a struct sockaddr. */
static __always_inline void address_of(struct sock *sk, bool own, u8 *to)
{
	u16 family = read_field(sk, __sk_common.skc_family);
	u16 port = own ? bpf_htons(read_field(sk, __sk_common.skc_num)) : read_field(sk, __sk_common.skc_dport);

	__builtin_memcpy(to, &family, sizeof(family));
	__builtin_memcpy(to + 2, &port, sizeof(port));
	if (family == AF_INET) {
		u32 a = own ? read_field(sk, __sk_common.skc_rcv_saddr) : read_field(sk, __sk_common.skc_daddr);
		__builtin_memcpy(to + 4, &a, sizeof(a));
	} else {
		struct in6_addr a = own ? read_field(sk, __sk_common.skc_v6_rcv_saddr) : read_field(sk, __sk_common.skc_v6_daddr);
		__builtin_memcpy(to + 8, &a, sizeof(a));
	}
}

static __noinline struct session *session_open(struct cursor *u, struct sock *sk, bool login)
{
	u64 inode = u->inode;
	struct session *s;

	if (bpf_map_update_elem(&sessions, &inode, &no_session, BPF_NOEXIST))
		count_user_target(USER_TARGET_LOST_SESSION);
	s = bpf_map_lookup_elem(&sessions, &inode);
	if (!s)
		return 0;
	s->since = u->now;
	s->id = __sync_fetch_and_add(&last_session, 1) + 1;
	s->logging_in = login;
	s->whole = login;
	address_of(sk, true, s->local);
	address_of(sk, false, s->remote);
	s->rx.in = 1;
	return s;
}

static __always_inline u64 operation_key(struct session *s, u32 tag)
{
	return (u64)s->id << 32 | tag;
}

/* Commands of a session that are over without an answer. */
struct abandoned {
	u64 before; /* that began before this time */
	u32 session;
	u32 lun;
	u32 ended; /* how many they were */
	u8 every_lun;
	u8 lost; /* their answers may come, and will not be understood */
	u8 pad[2];
};

static long abandon(void *map, u64 *key, struct operation *o, struct abandoned *a)
{
	u64 request = *key;
	u32 number = o->number;

	if (request >> 32 != a->session || o->start > a->before || (!a->every_lun && o->controller != a->lun))
		return 0;
	if (bpf_map_delete_elem(&operations, &request))
		return 0;
	a->ended++;
	if (a->lost)
		count(EVENT_REPLACED);
	else if (number)
		give_up(number);
	return 0;
}

/* Ends the commands, if any is under way. */
static __noinline void abandon_all(struct session *s, struct abandoned *a)
{
	if (!s || !a || !s->under_way)
		return;
	bpf_for_each_map_elem(&operations, abandon, a, 0);
	__sync_fetch_and_sub(&s->under_way, a->ended);
}

/* The command of this tag is over, and was not answered. */
static __noinline void command_given_up(struct session *s, u32 tag, u64 before)
{
	u64 key = operation_key(s, tag);
	struct operation *o = bpf_map_lookup_elem(&operations, &key);
	u32 number;

	if (!o || o->start > before)
		return;
	number = o->number;
	if (bpf_map_delete_elem(&operations, &key))
		return;
	__sync_fetch_and_sub(&s->under_way, 1);
	if (number)
		give_up(number);
}

static __always_inline void task_begins(struct session *s, struct message *m, u64 now)
{
	/* Of more than a few the oldest is forgotten. */
	struct task *t = &s->tasks[__sync_fetch_and_add(&s->next_task, 1) & (TASKS - 1)];

	t->since = now;
	t->tag = m->tag;
	t->lun = m->lun;
	t->reference = m->reference;
	t->scope = m->scope;
}

/* The target has answered a task management request. If it has done what was requested, the commands concerned
 * have no answer. */
static __noinline void task_ends(struct session *s, struct message *m)
{
	for (u32 i = 0; i < TASKS; i++) {
		struct task *t = &s->tasks[i];
		u8 scope = t->scope;

		if (scope == TASK_NONE || t->tag != m->tag)
			continue;
		t->scope = TASK_NONE;
		if (m->failed)
			return;
		if (scope == TASK_ONE) {
			command_given_up(s, t->reference, t->since);
			return;
		}
		struct abandoned a = {.before = t->since, .session = s->id, .lun = t->lun, .every_lun = scope == TASK_SESSION};
		abandon_all(s, &a);
		return;
	}
}

/* A direction is out of step: what is under way is lost. */
static __noinline void direction_lose_sync(struct cursor *u)
{
	struct session *s = u->session;
	struct abandoned all = {.before = u->now, .session = s->id, .every_lun = 1, .lost = 1};
	bool sure = s->named || u->direction->understood >= SURE;

	if (sure)
		count_user_target(USER_TARGET_RESYNC);
	else if (WIRE_GUESSES)
		s->digests = (s->digests + 1) & (DIGEST_HEADER | DIGEST_DATA);
	abandon_all(s, &all);
	s->whole = 0;
	s->since = u->now;
	u->direction->in = 0;
	if (!sure) {
		s->rx.in = 0;
		s->tx.in = 0;
	}
}

/* The number of a session's LUN, 0 if it has none yet. */
static __noinline u32 unit_number(struct session *s, u32 lun, bool enter, u32 scratch_slot)
{
	struct export_key key = {.subsystem = s->id, .namespace = lun};
	struct export *known = bpf_map_lookup_elem(&exports, &key);

	if (known)
		return known->number;
	struct export *fresh = enter ? export_new(scratch_slot) : 0;
	if (!fresh)
		return 0;
	fresh->inner = lun;
	if (s->named)
		__builtin_memcpy(fresh->nqn, s->target, sizeof(fresh->nqn));
	__builtin_memcpy(fresh->address, s->local, sizeof(s->local));
	__builtin_memcpy(fresh->service, s->remote, sizeof(s->remote));
	return export_enter(&key, fresh);
}

/* A LUN has got its number: its commands under way get it, too. */
struct numbered {
	u32 session;
	u32 lun;
	u32 number;
};

static long give_number(void *map, u64 *key, struct operation *o, struct numbered *n)
{
	if (*key >> 32 == n->session && o->controller == n->lun && !o->number)
		o->number = n->number;
	return 0;
}

static __noinline u32 unit_enter(struct cursor *u, u32 lun)
{
	struct session *s = u->session;
	struct numbered n = {.session = s->id, .lun = lun, .number = unit_number(s, lun, true, u->scratch_slot)};

	if (n.number && s->under_way)
		bpf_for_each_map_elem(&operations, give_number, &n, 0);
	return n.number;
}

static __noinline void command_begins(struct cursor *u)
{
	struct session *s = u->session;
	struct message *m = &u->direction->message;
	u64 key = operation_key(s, m->tag);
	/* identifier: whether it succeeds anywhere. */
	struct operation o = {.start = u->now, .bytes = m->bytes, .controller = m->lun, .identifier = m->anywhere, .op = m->op, .given_up = 1};
	/* Of a session whose login was not seen: a disk may have hung before. That the target talks there is known. */
	bool guess = !s->whole && s->tx.understood && s->guesses < GUESSES && m->op != OP_OTHER;

	/* Its answer will not come any more. */
	if (bpf_map_lookup_elem(&operations, &key))
		command_given_up(s, m->tag, ~0ULL);
	if ((s32)s->under_way >= UNDER_WAY_MAX) {
		count(EVENT_LOST_OPERATION);
		return;
	}
	o.number = unit_number(s, m->lun, false, 0);
	if (!o.number && guess) {
		s->guesses++;
		o.number = unit_enter(u, m->lun);
	}
	if (bpf_map_update_elem(&operations, &key, &o, BPF_NOEXIST)) {
		count(EVENT_LOST_OPERATION);
		return;
	}
	__sync_fetch_and_add(&s->under_way, 1);
	/* On the other CPU the LUN may have got its number in this moment. */
	struct operation *begun = o.number ? 0 : bpf_map_lookup_elem(&operations, &key);
	if (begun)
		begun->number = unit_number(s, m->lun, false, 0);
}

static __noinline void command_ends(struct cursor *u)
{
	struct session *s = u->session;
	struct message *m = &u->direction->message;
	u64 key = operation_key(s, m->tag);
	struct operation *begun = bpf_map_lookup_elem(&operations, &key);

	if (!begun) {
		if (s->whole || u->now - s->since > UNSURE)
			count(EVENT_UNMATCHED);
		return;
	}
	struct operation o = *begun;
	if (bpf_map_delete_elem(&operations, &key))
		return;
	__sync_fetch_and_sub(&s->under_way, 1);
	/* A LUN gets a number when something has succeeded there: initiators may request any. */
	if (!o.number)
		o.number = unit_number(s, o.controller, false, 0);
	bool proof = !m->failed && !o.identifier; /* see command_begins */
	if (!o.number && proof)
		o.number = unit_enter(u, o.controller);
	/* With no room for a number it counts under 0. */
	if (o.number || proof)
		operation_add(&o, m->failed);
}

/* The target has accepted a login. */
static __always_inline void login_done(struct session *s)
{
	s->logging_in = 0;
	s->named = s->target[0] != 0;
	s->digests = s->chosen;
}

/* A wire's own: see message.h. */
static __noinline void wire_login(struct session *s, struct message *m, struct login_text *text, bool to_target);
static __always_inline u32 wire_rejected(struct login_text *text);

/* A login's message is there to its end. */
static __noinline void login_ends(struct cursor *u)
{
	struct message *m = &u->direction->message;
	u64 key = login_key(u->inode, u->to_target);
	struct login_text *text = m->continues ? 0 : bpf_map_lookup_elem(&logins, &key);

	if (u->to_target)
		u->session->login_tag = m->tag;
	wire_login(u->session, m, text, u->to_target);
	if (text)
		login_forget(key);
}

/* The target has refused a message. If that was a command, no other answer comes. */
static __noinline void rejected(struct cursor *u)
{
	u64 key = login_key(u->inode, u->to_target);
	struct login_text *text = bpf_map_lookup_elem(&logins, &key);

	if (!text)
		return;
	command_given_up(u->session, wire_rejected(text), u->now);
	login_forget(key);
}

static __noinline void message_ends(struct cursor *u)
{
	struct session *s = u->session;
	struct message *m = &u->direction->message;

	/* On some wires a login is a command like others. */
	if (s->logging_in && m->kind == MESSAGE_ANSWER && m->tag == s->login_tag) {
		m->kind = MESSAGE_LOGIN_ANSWER;
		m->final = !m->failed;
	}
	switch (m->kind) {
	case MESSAGE_ANSWER:
		if (!s->quiet)
			command_ends(u);
		break;
	case MESSAGE_LOGIN:
	case MESSAGE_LOGIN_ANSWER:
		/* Once a session has begun there are none any more. */
		if (s->logging_in)
			login_ends(u);
		break;
	case MESSAGE_REJECTED:
		rejected(u);
		break;
	case MESSAGE_TASK:
		task_begins(s, m, u->now);
		break;
	case MESSAGE_TASK_ANSWER:
		task_ends(s, m);
		break;
	}
}

static __always_inline bool is_login(const struct message *m)
{
	return m->kind == MESSAGE_LOGIN || m->kind == MESSAGE_LOGIN_ANSWER;
}

/* How many bytes follow a header. */
static __always_inline u32 message_rest(const struct message *m, u8 digests)
{
	u32 rest = m->rest;

	if (digests & DIGEST_HEADER)
		rest += DIGEST_SIZE;
	if (digests & DIGEST_DATA && m->data)
		rest += DIGEST_SIZE;
	return rest;
}

/* One step through a call's bytes: some of what follows a header, or some of a header. Returns 1 at their end. */
static long direction_step(u32 i, struct cursor *u)
{
	struct session *s = u->session;
	struct direction *l = u->direction;

	if (!u->total)
		return 1;
	if (!u->left)
		return !next_segment(u);
	if (l->skip) {
		u32 n = l->skip < u->left ? l->skip : u->left;

		if (l->lead) {
			n = n < l->lead ? n : l->lead;
			l->lead -= n;
		} else if (l->text) {
			n = n < l->text ? n : l->text;
			l->text -= n;
			login_goes_on(login_key(u->inode, u->to_target), u->position, n);
		}
		l->skip -= n;
		forward(u, n);
		if (!l->skip)
			message_ends(u);
		return 0;
	}
	u32 have = l->have;
	if (have >= WIRE_HEADER_MAX)
		return 1; /* cannot be */
	u32 need = wire_need(l->header, have);
	u32 n = need - have;
	if (n > u->left)
		n = u->left;
	if (!n || n > WIRE_HEADER_MAX)
		return 1; /* cannot be */
	have &= HEADER_CAPACITY / 2 - 1;
	n &= HEADER_CAPACITY / 2 - 1;
	if (bpf_probe_read_user(l->header + have, n, (void *)u->position)) {
		count_user_target(USER_TARGET_LOST_FAULT);
		direction_lose_sync(u);
		return 1;
	}
	forward(u, n);
	have += n;
	l->have = have;
	if (have < wire_need(l->header, have))
		return 0;
	l->have = 0;
	struct message *m = &l->message;
	if (wire_parse(l->header, m, u->to_target)) {
		direction_lose_sync(u);
		return 1;
	}
	l->understood++;
	u->now++; /* which of two came first must be known */
	l->skip = message_rest(m, is_login(m) ? 0 : s->digests);
	l->lead = m->lead;
	l->text = m->text;
	if (m->kind == MESSAGE_COMMAND && !s->quiet)
		command_begins(u);
	if (!l->skip)
		message_ends(u);
	return 0;
}

/* Takes a call's bytes as the next ones of a direction. */
static __always_inline void direction_feed(struct cursor *u, struct message *first)
{
	struct direction *l = u->direction;

	if (!l->in) {
		enum beginning begins = begins_at(u, first);
		bool login = begins == BEGINS_CONNECTION || is_login(first);

		/* Once a session has begun there are no logins any more: data looks like one. */
		if (begins == BEGINS_NOTHING || (login && !u->session->logging_in))
			return;
		l->in = 1;
		l->have = 0;
		l->skip = 0;
		l->lead = 0;
		l->text = 0;
		l->understood = 0;
	}
	/* Two steps a message, and one a segment. */
	bpf_loop(4096, direction_step, u, 0);
	if (u->total && l->in) {
		count_user_target(USER_TARGET_LOST_FAULT);
		direction_lose_sync(u);
	}
}

/* A call of another kind has moved bytes, which cannot be read. That is no loss within what follows a header. */
static __always_inline void direction_miss(struct cursor *u)
{
	struct direction *l = u->direction;

	if (!l->in)
		return;
	if (u->total > l->skip || l->lead || l->text) {
		direction_lose_sync(u);
		return;
	}
	l->skip -= u->total;
	if (!l->skip)
		message_ends(u);
}

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct tcp_sock___user_target {
	u32 rcv_nxt;
	u32 copied_seq;
	u64 bytes_received;
};

#pragma clang attribute pop

/* Are the bytes that have just been received the connection's first ones? */
static __always_inline bool is_first(struct sock *sk, u32 result)
{
	struct tcp_sock___user_target *t = (void *)sk;
	u32 unread = read_field(t, rcv_nxt) - read_field(t, copied_seq);

	return read_field(t, bytes_received) == (u64)unread + result;
}

/* The current task's call on this socket has received bytes. The open sockets show whether the connection is closed. */
static __always_inline int received(u32 rank, struct sock *sk, u64 inode, u32 family, int result, u32 scratch_slot)
{
	struct session *s = bpf_map_lookup_elem(&sessions, &inode);

	if ((family != AF_INET && family != AF_INET6) || !inode || result <= 0)
		return 0;
	if (s && already_handled(&s->rx.handled_by, rank))
		return 0;
	struct cursor u = {.inode = inode, .now = bpf_ktime_get_ns(), .total = result, .scratch_slot = scratch_slot + rank * SCRATCH_SLOTS, .to_target = true};
	struct message first = {};
	bool known = call_bytes(&u);
	if (!s) {
		enum beginning begins = known ? begins_at(&u, &first) : BEGINS_NOTHING;
		/* What looks like a login elsewhere is data, which others choose. */
		bool login = begins == BEGINS_CONNECTION && is_first(sk, result);

		if (!login && (begins != BEGINS_MESSAGE || !bpf_map_lookup_elem(&older, &inode)))
			return 0;
		s = session_open(&u, sk, login);
		if (!s)
			return 0;
		already_handled(&s->rx.handled_by, rank);
	}
	u.session = s;
	u.direction = &s->rx;
	if (known)
		direction_feed(&u, &first);
	else
		direction_miss(&u);
	return 0;
}

/* The current task's call on this socket has sent bytes. */
static __always_inline int sent(u32 rank, u64 inode, int result, u32 scratch_slot)
{
	struct session *s = bpf_map_lookup_elem(&sessions, &inode);

	if (!s || result <= 0 || already_handled(&s->tx.handled_by, rank))
		return 0;
	struct cursor u = {.session = s, .direction = &s->tx, .inode = inode, .now = bpf_ktime_get_ns(), .total = result, .scratch_slot = scratch_slot + rank * SCRATCH_SLOTS};
	struct message first = {};
	if (call_bytes(&u))
		direction_feed(&u, &first);
	else
		direction_miss(&u);
	return 0;
}

#endif
