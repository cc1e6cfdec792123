/* Backup programs of the programs at a socket and at a process's beginning and end.
 *
 * While a task is preempted within a program, the kernel skips the same program's runs for every other task on that
 * CPU. There the agent attaches each such program several times, one after the other: a backup program does the work if
 * none before it has, which the state of that work shows. An event is missed only if tasks are preempted within all of
 * them at once, on one CPU. A backup program with nothing to do returns at once, so that this hardly happens.
 *
 * Whether it may have happened is known: of the tasks that are within all of them at once, the last to enter has found
 * the others there; and events are missed only if that one loses the CPU, too, before it is done. A task that loses
 * the CPU outside of program_enter() and program_exit(), in the few instructions by which the kernel enters and leaves
 * a program, is not seen. */
#ifndef __PLUMBLINE_BACKUPS_H__
#define __PLUMBLINE_BACKUPS_H__

#define MAX_BACKUPS 3 /* a mask, too */

/* Set by user space before loading: how many backup programs each program has. The cookie of each attachment
 * is its rank: 0 is the program itself, then come its backup programs. */
const volatile u32 backups;

/* The programs that have backup programs. */
enum program_group {
	GROUP_RECEIVED,
	GROUP_SENT,
	GROUP_SENDING,
	GROUP_SENDING_LOCAL,
	GROUP_EXECUTED,
	GROUP_ENDED,
	GROUPS,
};

/* Keeps the type in the object file, from where the agent takes the numbers. */
const enum program_group *unused_group __attribute__((unused));

/* What one of them is at. */
enum run_state {
	NOT_RUNNING,
	RUNNING,
	RUNNING_LAST, /* at work, and has found all others at work: nobody is left for events of other tasks */
};

/* Keeps the type in the object file, from where the agent takes the numbers. */
const enum run_state *unused_run_state __attribute__((unused));

/* Who of a program and its backup programs is at work on a CPU. By rank, each is written by its own program only. */
struct group_state {
	u8 inside[MAX_BACKUPS + 1];    /* enum run_state */
	u32 possible_misses;           /* runs that were the last and lost the CPU meanwhile: events may be missed */
	u64 switches[MAX_BACKUPS + 1]; /* how often the task had lost the CPU when it became the last */
};

/* By enum program_group. Those at the ends of calls on sockets are in socket_groups, which all collectors share: they
 * are as long at work as the collectors' programs to which they pass a call on (followed.h). */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, GROUPS);
	__type(key, u32);
	__type(value, struct group_state);
} program_groups SEC(".maps"), socket_groups SEC(".maps");

/* The rank of the program that the kernel runs. */
static __always_inline u32 rank_of(void *ctx)
{
	/* Older kernels have no cookies here. */
	return backups ? bpf_get_attach_cookie(ctx) & MAX_BACKUPS : 0;
}

/* The first thing that an attached program does; returns its rank. The dispatcher does it for all collectors' programs
 * to which it passes a call on: the last of these does program_exit(). */
static __always_inline u32 program_enter(void *ctx, void *all, u32 group)
{
	struct group_state *c;
	if (!backups || !(c = bpf_map_lookup_elem(all, &group)))
		return 0;
	u32 rank = rank_of(ctx);
	/* Before the check of the others: of two that come at once, one sees the other. */
	c->inside[rank] = RUNNING;
	barrier();
	for (u32 i = 0; i <= MAX_BACKUPS; i++)
		if (i <= backups && c->inside[i] == NOT_RUNNING)
			return rank;
	c->switches[rank] = bpf_get_current_task_btf()->nivcsw;
	c->inside[rank] = RUNNING_LAST;
	return rank;
}

/* The last thing that it does. */
static __always_inline int program_exit(void *all, u32 group, u32 rank)
{
	struct group_state *c;
	if (!backups || rank > MAX_BACKUPS || !(c = bpf_map_lookup_elem(all, &group)))
		return 0;
	/* Counted before it is forgotten: a reader sees one or the other. */
	if (c->inside[rank] == RUNNING_LAST && c->switches[rank] != bpf_get_current_task_btf()->nivcsw)
		__sync_fetch_and_add(&c->possible_misses, 1);
	c->inside[rank] = NOT_RUNNING;
	return 0;
}

/* Reports whether the work is done already; if not, the caller does it now. The mark shows who has run for the
 * event at hand. They run in the order of their ranks: one that finds itself, or a later one, in the mark has an
 * older event before it. */
static __always_inline bool already_handled(u8 *mark, u32 rank)
{
	if (!backups)
		return false;
	rank &= 7;
	u8 ran = *mark;
	if (ran >> rank)
		ran = 0;
	*mark = ran | 1 << rank;
	return ran;
}

#endif
