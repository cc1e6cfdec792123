/* What following a server costs its own processes, as the programs themselves measure it. */
#ifndef __QUERY_COST_H__
#define __QUERY_COST_H__

#include "state.h"

/* One run of a program in so many is timed, on average; by chance, so that no pattern of calls hides one kind. */
#define TIMED_EVERY 32

/* CPU time of the programs for a server's tasks, in ns: TIMED_EVERY times that of the runs that are timed. Without the
 * kernel's way into a program and out. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u64);
} costs SEC(".maps");

/* The beginning of a run that is timed, and what it takes to read the clock; both are 0 in other runs. */
struct timing {
	u64 began;
	u64 clock;
};

/* A program runs for this task. Its state was found before the run is timed, and is therefore looked up once more. */
static __always_inline struct timing timed(struct followed_task *followed, struct task_struct *task)
{
	struct timing t = {};
	if (!followed->until_timed)
		followed->until_timed = 1 + bpf_get_prandom_u32() % (2 * TIMED_EVERY - 1);
	if (--followed->until_timed)
		return t;
	u64 before = bpf_ktime_get_ns();
	t.began = bpf_ktime_get_ns();
	t.clock = t.began - before;
	bpf_task_storage_get(&followed_tasks, task, NULL, 0);
	return t;
}

/* A run of a program that is timed ends. One that lost the CPU meanwhile is left out: how long it ran is not known. */
static __noinline int add_cost(struct followed_task *followed, u64 began, u64 clock)
{
	if (!followed)
		return 0;
	u64 ran = bpf_ktime_get_ns() - began;
	barrier();
	u32 server = followed->server;
	u64 *cost = bpf_map_lookup_elem(&costs, &server);
	if (cost && followed->preempted_at < began && ran > clock)
		add(cost, (ran - clock) * TIMED_EVERY);
	return 0;
}

static __always_inline void timed_until_now(struct followed_task *followed, struct timing *t)
{
	if (t->began)
		add_cost(followed, t->began, t->clock);
}

#endif
