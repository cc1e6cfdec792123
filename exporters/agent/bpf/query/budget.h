/* What following costs a server, as the programs themselves measure it, and what is left out where that is more
 * than the agent may use: the time of most statements is then not given to phases one by one. They are brief.
 *
 * The count, command and duration of a brief statement are as exact as ever. Its time is one sum, UNSPLIT, which
 * the agent gives to the phases as the statements that are split show it (sample_ns). What costs the most, to find
 * what a statement sleeps in, is done only if a sleep or the statement is long: that is split exactly, and all
 * that comes after, so that a stall is never a matter of chance. */
#ifndef __QUERY_BUDGET_H__
#define __QUERY_BUDGET_H__

#include "state.h"

/* Sleeps from this length on are split in any case, and what comes of a statement from this age on, ns. */
#define LONG_SLEEP 1000000ULL
#define LONG_STATEMENT 10000000ULL

enum brief {
	SPLIT,       /* all of the statement's time is given to phases */
	BRIEF,       /* none of it so far */
	BRIEF_UNTIL, /* only what came after some time */
};

/* Set by user space before loading: there is a budget. */
const volatile bool budgeted;

/* One run of a program in so many is timed, on average; by chance, so that no pattern of calls hides one kind. */
#define TIMED_EVERY 32

/* What following a server has cost, and what its tasks have used. */
struct budget {
	u64 own_ns; /* CPU time of the programs for its tasks, TIMED_EVERY times the timed; without kernel entry */
	u64 cpu_ns; /* CPU time of its tasks */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, struct budget);
} budgets SEC(".maps");

/* By server: of 2 to the power of this many statements the time of one is split. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, u32);
} sampling SEC(".maps");

/* Keep the types in the object file, from where the agent takes them. */
const struct budget *unused_budget __attribute__((unused));

/* Adds to a server's budget, with the CPU time of the task since that was added last. */
static __noinline int budget_cpu(struct backend *b, struct task_struct *task, u64 own)
{
	if (!b || !task || !budgeted)
		return 0;
	u32 server = b->server;
	struct budget *u = bpf_map_lookup_elem(&budgets, &server);
	u64 cpu = task->se.sum_exec_runtime;
	if (!u)
		return 0;
	add(&u->own_ns, own);
	add(&u->cpu_ns, cpu - b->exec_seen);
	b->exec_seen = cpu;
	return 0;
}

/* A program runs for this task: when it began, if it is one that is timed, or 0. */
static __always_inline u64 timed(struct backend *b)
{
	if (!budgeted)
		return 0;
	if (!b->until_timed)
		b->until_timed = 1 + bpf_get_prandom_u32() % (2 * TIMED_EVERY - 1);
	return --b->until_timed ? 0 : bpf_ktime_get_ns();
}

/* It ends. One that lost the CPU meanwhile is left out: how long it ran is not known. */
static __always_inline int timed_until_now(struct backend *b, struct task_struct *task, u64 began)
{
	if (!began)
		return 0;
	u64 end = bpf_ktime_get_ns();
	barrier();
	if (b->preempted_at < began)
		budget_cpu(b, task, (end - began) * TIMED_EVERY);
	return 0;
}

/* A statement begins, with so much time of this phase: is its time split? */
static __noinline int choose_brief(struct backend *b, u32 kind, u64 ns)
{
	if (!b)
		return 0;
	u32 server = b->server;
	u32 *power = bpf_map_lookup_elem(&sampling, &server);
	u32 others = power ? (1U << (*power & 15)) - 1 : 0;
	b->brief = SPLIT;
	b->split_one = 0;
	b->asleep_at = 0;
	b->lock_wait = 0;
	b->cut = 0;
	b->missed_last = 0;
	b->first_kind = kind;
	b->first_ns = ns;
	if (!others)
		return 0;
	if (bpf_get_prandom_u32() & others)
		b->brief = BRIEF;
	else
		b->split_one = 1;
	return 0;
}

/* A brief statement goes on up to now. */
static __always_inline void stays_brief(struct backend *b, u64 now)
{
	b->phase[UNSPLIT] += now - b->mark;
	b->asleep_at = 0;
	b->preempted = 0;
	b->mark = now;
}

/* From here on a brief statement's time would be split, too: what a statement that stands for others shows of it
 * is what came before. */
static __always_inline void cut(struct backend *b, u32 misses)
{
	if (!b->split_one || b->cut)
		return;
	__builtin_memcpy(b->until_ns, b->phase, sizeof(b->until_ns));
	b->until_misses = misses;
	b->cut = 1;
}

/* A statement that stands for others ended. */
static __always_inline void sample(struct backend *b, struct stats *s, bool at_send, u64 hits)
{
	add(&s->sample_hits, hits);
	add(&s->sample_misses, b->cut ? b->until_misses : b->misses);
	for (u32 i = 0; i < PHASES; i++) {
		u64 ns = at_send ? b->sent_phase[i] : b->phase[i];
		if (b->cut && b->until_ns[i] < ns)
			ns = b->until_ns[i];
		u64 first = i == b->first_kind ? b->first_ns : 0;
		if (ns > first)
			add(&s->sample_ns[i], ns - first);
	}
}

#endif
