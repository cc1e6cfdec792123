/* What a context switch means for a statement's clock, see clock.h. */
#ifndef __QUERY_SWITCH_H__
#define __QUERY_SWITCH_H__

#include "clock.h"
#include "protocol.h"

/* The phase of a task that goes to sleep, and the system call it is in. */
static __always_inline u32 phase_asleep(struct backend *b, struct task_struct *task, long *nr)
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
static __always_inline void fall_asleep(struct backend *b, u32 kind, u64 ran, u64 now)
{
	bool goes_on = kind == b->off_kind && ran < SHORT_RUN && b->wait_start &&
		       now - ran - b->wait_start > LONG_WAIT;
	if (!goes_on)
		b->wait_start = now;
	b->off_kind = kind;
}

/* The task loses the CPU within a program that works on its clock, which must stay as it is. */
static __always_inline void program_stops(struct backend *b, struct task_struct *task, u64 now)
{
	if (b->stands_still)
		goes_on_unseen(b, task);
	/* When the task comes back, the kernel forgets when it came here. */
	else if (b->is_off && !b->unseen)
		b->unseen = arrival_since(b, task);
	b->left = last_arrival(task);
	b->preempted_at = now;
	b->stands_still = 1;
}

/* A read call that waits for a device. The kernel counts a read call at its end: one count, one call. */
static __always_inline void note_miss(struct backend *b, struct task_struct *task)
{
	b->missed_last = 0;
	if (!b->read_call || !BPF_CORE_READ_BITFIELD(task, in_iowait))
		return;
	u64 call = reads_so_far(task) + 1;
	if (b->missed_at != call) {
		b->missed_at = call;
		b->misses++;
		b->missed_last = 1;
	}
}

/* Reports whether a brief statement's sleep needs no more than its time: in a call that shows what it waits for,
 * and not where the statement may be over. */
static __always_inline bool sleeps_briefly(struct backend *b, struct task_struct *task)
{
	if (b->sent)
		return false;
	long nr = SYSCALL_NR((struct pt_regs *)bpf_task_pt_regs(task));
	if (is_poll(nr) || nr == NR_io_uring_enter)
		return false;
	/* Others may wait for it. */
	if (traits_of(b->engine) & FLUSHES && (nr == NR_fsync || nr == NR_fdatasync))
		return false;
	/* A thread whose client is gone has nothing under way, which proto_rests() reports. */
	return !(nr == NR_futex && b->socket_inode && is_gone(b));
}

/* A brief statement's sleep was long, and ends at now: from its beginning on the statement's time is split. The
 * task has not run yet, so that its saved registers still show where it slept. */
static __noinline int slept_long(struct backend *b, struct task_struct *task, u64 now)
{
	if (!b || !task)
		return 0;
	b->phase[UNSPLIT] += b->asleep_at - b->mark;
	b->off_kind = asleep_in(b, task);
	b->wait_start = b->asleep_at;
	b->off_ns = now - b->asleep_at;
	b->preempted = 0;
	b->mark = now;
	b->brief = BRIEF_UNTIL;
	note_miss(b, task);
	return 0;
}

static __always_inline void leave_cpu(struct backend *b, struct task_struct *task, bool runnable)
{
	u64 now;
	long nr;
	if (b->held) {
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
				if (b->off_kind == PHASE_SYNC && traits_of(b->engine) & FLUSHES)
					flusher_sleeps(b, task, now);
				b->mark = now;
				b->left = last_arrival(task);
				b->is_off = 1;
			}
		}
		return;
	}
	now = bpf_ktime_get_ns();
	bool briefly = (b->brief == BRIEF || b->split_one) && now - b->start < LONG_STATEMENT && (runnable || sleeps_briefly(b, task));
	if (briefly && b->brief == BRIEF) {
		b->queued = queued_so_far(task);
		b->left = last_arrival(task);
		b->asleep_at = runnable ? 0 : now;
		return;
	}
	u64 ran = b->phase[PHASE_CPU];
	advance(b, task, now);
	if (b->brief)
		b->brief = BRIEF_UNTIL;
	if (!briefly)
		cut(b, b->misses);
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

static __always_inline void enter_cpu(struct backend *b, struct task_struct *task)
{
	if (b->held) {
		if (b->stands_still)
			program_goes_on(b, bpf_ktime_get_ns());
		return;
	}
	u64 from = b->is_off && (b->busy || !b->socket) ? b->mark : 0;
	if (!b->is_off && !b->asleep_at)
		return;
	u64 now = bpf_ktime_get_ns();
	if (b->asleep_at) {
		if (b->busy && b->brief == BRIEF && now - b->asleep_at >= LONG_SLEEP) {
			slept_long(b, task, now);
			from = b->asleep_at;
		}
		b->asleep_at = 0;
	}
	if (from && traits_of(b->engine) & FLUSHES && (b->off_kind == PHASE_SYNC || b->off_kind == PHASE_WAIT))
		slept_for_sync(b, task, from, now);
	if (b->is_off)
		on_cpu_since(b, task, now);
}

#endif
