/* The commands of a connection's prepared statements, by the hash of their names. */
#ifndef __QUERY_PREPARED_H__
#define __QUERY_PREPARED_H__

#include "state.h"

#define PREPARED 1024 /* names remembered; a power of two */
#define WINDOW 32     /* places where a name may be: filled to the half, one in 200,000 finds none */
#define TAG (~255U)   /* bits of the hash that are kept */

/* A hash table of places: bits of a name's hash | REQUEST_HAS_STATEMENT | command, with REQUEST_UNKNOWN; 0 if it is
 * free. */
struct names {
	u32 place[PREPARED];
	u16 used[PREPARED]; /* now, when it was used last */
	u16 now;            /* counts the statements that were prepared */
};

/* Of connections whose bytes are plain. */
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct names);
} prepared SEC(".maps");

/* Of a process's only connection, and of a thread's encrypted one, see connection.h. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct names);
} prepared_by_task SEC(".maps");

static __always_inline struct names *names_of_task(u64 flags)
{
	return bpf_task_storage_get(&prepared_by_task, bpf_get_current_task_btf(), NULL, flags);
}

/* Those of a connection; sk is NULL of an encrypted one. */
static __always_inline struct names *names_of(struct sock *sk, u64 flags)
{
	return sk ? bpf_sk_storage_get(&prepared, sk, NULL, flags) : names_of_task(flags);
}

/* Where in its window a name is, or WINDOW. */
static __noinline u32 find_name(struct names *n, u32 hash)
{
	if (!n)
		return WINDOW;
	for (u32 i = 0; i < WINDOW; i++) {
		u32 place = n->place[(hash + i) & (PREPARED - 1)];
		if (place && (place & TAG) == (hash & TAG))
			return i;
	}
	return WINDOW;
}

struct search {
	struct names *names;
	u32 hash, best, age;
};

static long search_step(u32 i, struct search *s)
{
	u32 at = (s->hash + i) & (PREPARED - 1);
	u32 age = (u16)(s->names->now - s->names->used[at]);
	if (!s->names->place[at]) {
		s->best = i;
		return 1;
	}
	if (age > s->age) {
		s->age = age;
		s->best = i;
	}
	return 0;
}

/* A free place in a name's window, or else the one that was not used for longest: names that SQL
 * took back (DEALLOCATE, DISCARD) are not seen to end, and grow old. */
static __noinline u32 find_place(struct names *n, u32 hash)
{
	struct search s = {.names = n, .hash = hash};
	if (!n)
		return 0;
	bpf_loop(WINDOW, search_step, &s, 0);
	return s.best & (WINDOW - 1);
}

/* A statement was prepared under a name. */
__noinline int remember(struct names *n, u32 hash, u32 command)
{
	if (!n)
		return 0; /* its executions are counted as unknown */
	u32 i = find_name(n, hash);
	if (i >= WINDOW)
		i = find_place(n, hash);
	u32 at = (hash + i) & (PREPARED - 1);
	n->place[at] = (hash & TAG) | REQUEST_HAS_STATEMENT | (command & (REQUEST_COMMAND_BITS | REQUEST_UNKNOWN));
	n->used[at] = ++n->now;
	return 0;
}

/* The command of the statement with a name; OTHER | REQUEST_UNKNOWN if it was prepared before the agent
 * came, or has lost its place. */
__noinline u32 recall(struct names *n, u32 hash)
{
	if (!n)
		return OTHER | REQUEST_UNKNOWN;
	u32 i = find_name(n, hash);
	if (i >= WINDOW)
		return OTHER | REQUEST_UNKNOWN;
	u32 at = (hash + i) & (PREPARED - 1);
	n->used[at] = n->now;
	return n->place[at] & (REQUEST_COMMAND_BITS | REQUEST_UNKNOWN);
}

/* The statement with a name is gone. */
__noinline int forget_name(struct names *n, u32 hash)
{
	if (!n)
		return 0;
	u32 i = find_name(n, hash);
	if (i < WINDOW)
		n->place[(hash + i) & (PREPARED - 1)] = 0;
	return 0;
}

#endif
