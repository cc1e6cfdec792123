/* The commands of a connection's prepared statements, by the hash of their names. */
#ifndef __QUERY_PREPARED_H__
#define __QUERY_PREPARED_H__

#include "state.h"

#define PREPARED 1024 /* names remembered; a power of two */
#define WINDOW 32     /* places where a name may be: filled to the half, one in 200,000 finds none */
#define TAG (~255U)   /* bits of the hash that are kept */

/* Place: bits of the name's hash | HAS_STATEMENT | command; 0 if it is free. */
struct names {
	u32 place[PREPARED];
	u32 next; /* place in a full window to be used next */
};

/* Task-local: one per process or thread that prepared a statement with a name. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct names);
} prepared SEC(".maps");

static __always_inline struct names *names_of_task(u64 flags)
{
	return bpf_task_storage_get(&prepared, bpf_get_current_task_btf(), NULL, flags);
}

/* The place of a name, or, without one, a free place, or else WINDOW. */
static __noinline u32 find_name(struct names *n, u32 hash, bool free)
{
	u32 first_free = WINDOW;
	if (!n)
		return WINDOW;
	for (u32 i = 0; i < WINDOW; i++) {
		u32 place = n->place[(hash + i) & (PREPARED - 1)];
		if (!place)
			first_free = first_free < i ? first_free : i;
		else if ((place & TAG) == (hash & TAG))
			return i;
	}
	return free ? first_free : WINDOW;
}

/* A statement was prepared under a name. In a full window it takes another one's place. */
__noinline int remember(u32 hash, u32 command)
{
	struct names *n = names_of_task(BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!n)
		return 0; /* its executions are told of, see recall() */
	u32 i = find_name(n, hash, true);
	if (i >= WINDOW)
		i = n->next++ & (WINDOW - 1);
	n->place[(hash + i) & (PREPARED - 1)] = (hash & TAG) | HAS_STATEMENT | (command & COMMAND_BITS);
	return 0;
}

/* The command of the statement with a name; OTHER if it was prepared before the agent came, or
 * has lost its place. */
__noinline u32 recall(u32 server, u32 hash)
{
	struct names *n = names_of_task(0);
	if (n) {
		u32 i = find_name(n, hash, false);
		if (i < WINDOW)
			return n->place[(hash + i) & (PREPARED - 1)] & COMMAND_BITS;
	}
	lose(server, LOST_PREPARED);
	return OTHER;
}

/* The statement with a name is gone. */
__noinline int forget_name(u32 hash)
{
	struct names *n = names_of_task(0);
	if (!n)
		return 0;
	u32 i = find_name(n, hash, false);
	if (i < WINDOW)
		n->place[(hash + i) & (PREPARED - 1)] = 0;
	return 0;
}

#endif
