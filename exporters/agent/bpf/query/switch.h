/* What a context switch means for a statement's clock, see clock.h. */
#ifndef __QUERY_SWITCH_H__
#define __QUERY_SWITCH_H__

#include "clock.h"
#include "protocol.h"

/* The phase of a task that goes to sleep, and the system call it is in. */
static __always_inline u32 phase_asleep(struct followed_task *followed, struct task_struct *task, long *nr)
{
	u32 kind = asleep_in(followed, task);
	*nr = SYSCALL_NR((struct pt_regs *)bpf_task_pt_regs(task));
	return kind == PHASE_WAIT ? proto_waits(followed, *nr) : kind;
}

/* The kernel wakes a task that waits long for a block device now and then (blk_wait_io), only to
 * let it sleep on: waits of this length with no more than this between them are one wait. */
#define LONG_WAIT 10000000000ULL
#define SHORT_RUN 1000000ULL

/* The task goes to sleep at now, for the phase kind. Before, it ran since followed->mark. */
static __always_inline void fall_asleep(struct followed_task *followed, u32 kind, u64 ran, u64 now)
{
	bool goes_on = kind == followed->off_kind && ran < SHORT_RUN && followed->wait_start &&
		       now - ran - followed->wait_start > LONG_WAIT;
	if (!goes_on)
		followed->wait_start = now;
	followed->off_kind = kind;
}

/* The task loses the CPU within a program that works on its clock, which must stay as it is. */
static __always_inline void program_stops(struct followed_task *followed, struct task_struct *task, u64 now)
{
	if (followed->program_off_cpu)
		resume_missed(followed, task);
	/* When the task comes back, the kernel forgets when it came here. */
	else if (followed->is_off && !followed->unseen)
		followed->unseen = arrival_since(followed, task);
	followed->left = last_arrival(task);
	followed->preempted_at = now;
	followed->program_off_cpu = 1;
}

/* A read call that waits for a device. The kernel counts a read call at its end: one count, one call. */
static __always_inline void note_miss(struct followed_task *followed, struct task_struct *task)
{
	if (!followed->read_call || !BPF_CORE_READ_BITFIELD(task, in_iowait))
		return;
	u64 call = reads_so_far(task) + 1;
	if (followed->missed_at != call) {
		followed->missed_at = call;
		followed->misses++;
	}
}

static __always_inline void switch_out(struct followed_task *followed, struct task_struct *task, bool runnable)
{
	u64 now;
	long nr;
	if (followed->locked) {
		program_stops(followed, task, bpf_ktime_get_ns());
		return;
	}
	if (!followed->busy) {
		/* The wait for a CPU after the wake-up that brings the next request is part of it. */
		if (!runnable) {
			followed->slept = 1;
			followed->queued = queued_so_far(task);
			if (tracing)
				followed->idle_since = bpf_ktime_get_ns();
			/* It has no client: one of the server's own, which may wait for the disk. */
			if (!followed->socket) {
				now = bpf_ktime_get_ns();
				fall_asleep(followed, phase_asleep(followed, task, &nr), now - followed->mark, now);
				if (followed->off_kind == PHASE_SYNC && traits_of(followed->engine) & TRAIT_SHARES_SYNCS)
					flusher_sleeps(followed, task, now);
				followed->mark = now;
				followed->left = last_arrival(task);
				followed->is_off = 1;
			}
		}
		return;
	}
	now = bpf_ktime_get_ns();
	u64 ran = followed->phase[PHASE_CPU];
	advance(followed, task, now);
	ran = followed->phase[PHASE_CPU] - ran;
	followed->left = last_arrival(task);
	if (runnable) {
		followed->off_kind = PHASE_RUNQUEUE;
		followed->is_off = 1;
		return;
	}
	followed->queued = queued_so_far(task);
	u32 kind = phase_asleep(followed, task, &nr);
	if (kind == PHASE_WAIT && proto_rests(followed, task, nr, now)) {
		followed->slept = 1;
		followed->off_kind = kind;
		followed->is_off = 1;
		if (tracing)
			followed->idle_since = now;
		return;
	}
	fall_asleep(followed, kind, ran, now);
	followed->is_off = 1;
	note_miss(followed, task);
}

static __always_inline void enter_cpu(struct followed_task *followed, struct task_struct *task)
{
	if (followed->locked) {
		if (followed->program_off_cpu)
			program_resumed(followed, bpf_ktime_get_ns());
		return;
	}
	if (!followed->is_off)
		return;
	u64 now = bpf_ktime_get_ns();
	if (traits_of(followed->engine) & TRAIT_SHARES_SYNCS && (followed->busy || !followed->socket) &&
		(followed->off_kind == PHASE_SYNC || followed->off_kind == PHASE_WAIT))
		slept_for_sync(followed, task, followed->mark, now);
	on_cpu_since(followed, task, now);
}

#endif
