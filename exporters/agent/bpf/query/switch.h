/* What a context switch means for a statement's clock, see clock.h. */
#ifndef __QUERY_SWITCH_H__
#define __QUERY_SWITCH_H__

#include "clock.h"
#include "protocol.h"

/* The phase of a task that goes to sleep, and the system call it is in. */
static __always_inline u32 phase_asleep(struct followed_task *b, struct task_struct *task, long *nr)
{
	u32 kind = asleep_in(b, task);
	*nr = SYSCALL_NR((struct pt_regs *)bpf_task_pt_regs(task));
	return kind == PHASE_WAIT ? proto_waits(b, *nr) : kind;
}

/* The kernel wakes a task that waits long for a block device now and then (blk_wait_io), only to
 * let it sleep on: waits of this length with no more than this between them are one wait. */
#define LONG_WAIT 10000000000ULL
#define SHORT_RUN 1000000ULL

/* The task goes to sleep at now, for the phase kind. Before, it ran since b->mark. */
static __always_inline void fall_asleep(struct followed_task *b, u32 kind, u64 ran, u64 now)
{
	bool goes_on = kind == b->off_kind && ran < SHORT_RUN && b->wait_start &&
		       now - ran - b->wait_start > LONG_WAIT;
	if (!goes_on)
		b->wait_start = now;
	b->off_kind = kind;
}

/* The task loses the CPU within a program that works on its clock, which must stay as it is. */
static __always_inline void program_stops(struct followed_task *b, struct task_struct *task, u64 now)
{
	if (b->program_off_cpu)
		resume_missed(b, task);
	/* When the task comes back, the kernel forgets when it came here. */
	else if (b->is_off && !b->unseen)
		b->unseen = arrival_since(b, task);
	b->left = last_arrival(task);
	b->preempted_at = now;
	b->program_off_cpu = 1;
}

/* A read call that waits for a device. The kernel counts a read call at its end: one count, one call. */
static __always_inline void note_miss(struct followed_task *b, struct task_struct *task)
{
	if (!b->read_call || !BPF_CORE_READ_BITFIELD(task, in_iowait))
		return;
	u64 call = reads_so_far(task) + 1;
	if (b->missed_at != call) {
		b->missed_at = call;
		b->misses++;
	}
}

static __always_inline void switch_out(struct followed_task *b, struct task_struct *task, bool runnable)
{
	u64 now;
	long nr;
	if (b->locked) {
		program_stops(b, task, bpf_ktime_get_ns());
		return;
	}
	if (!b->busy) {
		/* The wait for a CPU after the wake-up that brings the next request is part of it. */
		if (!runnable) {
			b->slept = 1;
			b->queued = queued_so_far(task);
			if (tracing)
				b->idle_since = bpf_ktime_get_ns();
			/* It has no client: one of the server's own, which may wait for the disk. */
			if (!b->socket) {
				now = bpf_ktime_get_ns();
				fall_asleep(b, phase_asleep(b, task, &nr), now - b->mark, now);
				if (b->off_kind == PHASE_SYNC && traits_of(b->engine) & TRAIT_SHARES_SYNCS)
					flusher_sleeps(b, task, now);
				b->mark = now;
				b->left = last_arrival(task);
				b->is_off = 1;
			}
		}
		return;
	}
	now = bpf_ktime_get_ns();
	u64 ran = b->phase[PHASE_CPU];
	advance(b, task, now);
	ran = b->phase[PHASE_CPU] - ran;
	b->left = last_arrival(task);
	if (runnable) {
		b->off_kind = PHASE_RUNQUEUE;
		b->is_off = 1;
		return;
	}
	b->queued = queued_so_far(task);
	u32 kind = phase_asleep(b, task, &nr);
	if (kind == PHASE_WAIT && proto_rests(b, task, nr, now)) {
		b->slept = 1;
		b->off_kind = kind;
		b->is_off = 1;
		if (tracing)
			b->idle_since = now;
		return;
	}
	fall_asleep(b, kind, ran, now);
	b->is_off = 1;
	note_miss(b, task);
}

static __always_inline void enter_cpu(struct followed_task *b, struct task_struct *task)
{
	if (b->locked) {
		if (b->program_off_cpu)
			program_resumed(b, bpf_ktime_get_ns());
		return;
	}
	if (!b->is_off)
		return;
	u64 now = bpf_ktime_get_ns();
	if (traits_of(b->engine) & TRAIT_SHARES_SYNCS && (b->busy || !b->socket) && (b->off_kind == PHASE_SYNC || b->off_kind == PHASE_WAIT))
		slept_for_sync(b, task, b->mark, now);
	on_cpu_since(b, task, now);
}

#endif
