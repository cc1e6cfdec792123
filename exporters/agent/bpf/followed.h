/* Which collectors follow a process, so that everybody else's calls on sockets cost one load; and how these calls come
 * to the collectors' programs.
 *
 * One program is attached to each tracepoint at which a call on a socket ends (dispatcher/dispatcher.bpf.c). It passes
 * the call on to the program of the first collector that follows the calling process, which passes it on to the next
 * one: by tail calls, so that the last one leaves (backups.h). So the kernel runs one program for all other processes,
 * however many collectors there are. */
#ifndef __PLUMBLINE_FOLLOWED_H__
#define __PLUMBLINE_FOLLOWED_H__

#include "backups.h"
#include "kernel.h"

/* The collectors that follow calls on sockets, in the order in which these come to them. */
enum follower {
	FOLLOWS_REPLICAS,
	FOLLOWS_NVME,
	FOLLOWS_ISCSI,
	FOLLOWS_STATEMENTS, /* of any task that has storage: the programs know what they follow by that */
	FOLLOWERS,
};

/* Keeps the type in the object file, from where the agent takes the numbers. */
const enum follower *unused_follower __attribute__((unused));

/* The collectors' programs at each tracepoint: by rank, and then by enum follower. User space writes them. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, FOLLOWERS *(1 + MAX_BACKUPS));
	__type(key, u32);
	__type(value, u32);
} received_by SEC(".maps"), sent_by SEC(".maps");

#define FOLLOWED_WORDS (65536 / 8)

/* A byte for each tgid % 65536, whose bits are enum follower. User space writes them, by the process ids that it
 * has. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, FOLLOWED_WORDS);
	__type(key, u32);
	__type(value, u64);
} followed SEC(".maps");

/* The PID namespace of the process ids that user space has; 0 for the machine's own. */
const volatile u32 pid_namespace;

/* The task's process id in the namespace; 0 if it is not in there. */
static __noinline u32 tgid_within(struct task_struct *task)
{
	struct pid *pid = task->group_leader->thread_pid;
	u32 level = pid->level;
	for (u32 i = 1; i < MAX_PID_NAMESPACES && i <= level; i++) {
		struct id_within id = id_at(pid, i);

		if (id.pid_namespace == pid_namespace)
			return id.nr;
	}
	return 0;
}

/* The task's process id as user space has it; 0 if it has none. */
static __always_inline u32 tgid_of(struct task_struct *task)
{
	return pid_namespace ? tgid_within(task) : task->tgid;
}

/* The collectors, as bits, that follow the process, or one whose number has the same byte. */
static __always_inline u32 followers_of(u32 tgid)
{
	u32 word = tgid >> 3 & (FOLLOWED_WORDS - 1);
	u64 *bytes = bpf_map_lookup_elem(&followed, &word);

	return bytes ? *bytes >> (tgid & 7) * 8 & 0xff : 0;
}

/* Does this collector follow the process, or one whose number has the same byte? */
static __always_inline bool maybe_followed(u32 tgid, enum follower own)
{
	return followers_of(tgid) >> own & 1;
}

/* Passes the call at hand on to the next of these collectors, from this one on. Returns if there is none. */
static __always_inline void pass_on_to(u32 followers, struct task_struct *task, void *ctx, void *programs, u32 rank, enum follower from)
{
#pragma unroll
	for (u32 f = 0; f < FOLLOWERS; f++) {
		if (f < from)
			continue;
		if (f == FOLLOWS_STATEMENTS ? bpf_core_field_exists(task->bpf_storage) && !task->bpf_storage : !(followers >> f & 1))
			continue;
		bpf_tail_call(ctx, programs, rank * FOLLOWERS + f);
	}
}

/* Passes the call at hand on to the next collector that follows the task, from this one on. Returns if there is
 * none. */
static __always_inline void pass_on(void *ctx, void *programs, u32 rank, enum follower from)
{
	struct task_struct *task = bpf_get_current_task_btf();

	pass_on_to(followers_of(tgid_of(task)), task, ctx, programs, rank, from);
}

#endif
