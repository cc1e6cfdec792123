/* Where a statement's time goes. Between its start and its end every nanosecond is given to
 * exactly one phase: on a CPU (cpu), ready to run but not running (runqueue), or asleep, and
 * then by the system call it sleeps in. Time on a CPU inside a system call is cpu, so that a
 * read from the page cache costs cpu and only a read that waits costs read.
 *
 * No system call is traced: sched_switch runs in the task that goes to sleep, and its saved
 * user registers name the call. */
#ifndef __QUERY_CLOCK_H__
#define __QUERY_CLOCK_H__

#include "arch.h"
#include "state.h"

#define O_DSYNC 00010000
#define S_IFMT 00170000
#define S_IFSOCK 0140000
#define S_IFREG 0100000
#define S_IFBLK 0060000

static __always_inline u64 queued_so_far(struct task_struct *task)
{
	return bpf_core_field_exists(task->sched_info.run_delay) ? task->sched_info.run_delay : 0;
}

static __always_inline u64 reads_so_far(struct task_struct *task)
{
	return bpf_core_field_exists(task->ioac.syscr) ? task->ioac.syscr : 0;
}

/* Gives the last time off the CPU to its phases. It is done late because the kernel adds
 * the time in the run queue to run_delay only after sched_switch. */
static __always_inline void settle(struct backend *b, struct task_struct *task)
{
	if (!b->off_ns)
		return;
	u64 queued = b->off_ns;
	if (b->off_kind != PHASE_RUNQUEUE) {
		u64 delta = queued_so_far(task) - b->queued;
		if (delta < queued)
			queued = delta;
	}
	b->phase[PHASE_RUNQUEUE] += queued;
	u32 kind = b->off_kind;
	if (kind < PHASES)
		b->phase[kind] += b->off_ns - queued;
	b->off_ns = 0;
}

/* Accounts for everything up to now; the task is on a CPU. */
static __always_inline void advance(struct backend *b, struct task_struct *task, u64 now)
{
	settle(b, task);
	b->phase[PHASE_CPU] += now - b->mark;
	b->mark = now;
}

struct blocked_file {
	u32 flags;
	u32 type;
	u64 socket;
};

static __always_inline void file_of(struct task_struct *task, u32 fd, struct blocked_file *f)
{
	struct file **files = BPF_CORE_READ(task, files, fdt, fd);
	struct file *file = NULL;
	if (bpf_core_read(&file, sizeof(file), files + fd) || !file)
		return;
	f->flags = BPF_CORE_READ(file, f_flags);
	f->type = BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;
	if (f->type == S_IFSOCK) {
		struct socket *s = BPF_CORE_READ(file, private_data);
		f->socket = (u64)BPF_CORE_READ(s, sk);
	}
}

#define PG_WAIT_IO 0x0a /* class of PostgreSQL's wait events, see wait_classes.h there */

/* The phase of a PostgreSQL backend that sleeps until its latch is set. From version 18 on it
 * may be the end of a read that an I/O worker does for it; it says so in shared memory. */
static __always_inline u32 pg_waits_for(struct backend *b)
{
	u32 id = b->server;
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	u64 at = 0;
	u32 event = 0;
	if (!s || !s->wait_event)
		return PHASE_WAIT;
	if (bpf_probe_read_user(&at, sizeof(at), (void *)s->wait_event) ||
	    bpf_probe_read_user(&event, sizeof(event), (void *)at))
		return PHASE_WAIT;
	return event >> 24 == PG_WAIT_IO ? PHASE_READ : PHASE_WAIT;
}

/* The phase of a task that goes to sleep: by the system call it is in. */
static __noinline u32 asleep_in(struct backend *b, struct task_struct *task)
{
	if (!b || !task)
		return PHASE_WAIT;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct blocked_file f = {};
	switch (SYSCALL_NR(regs)) {
	case NR_read:
	case NR_readv:
	case NR_pread64:
	case NR_preadv:
	case NR_preadv2:
		file_of(task, ARG1(regs), &f);
		if (f.type == S_IFREG || f.type == S_IFBLK)
			return PHASE_READ;
		return f.socket && f.socket == b->socket ? PHASE_CLIENT : PHASE_WAIT;
	case NR_write:
	case NR_writev:
	case NR_pwrite64:
	case NR_pwritev:
	case NR_pwritev2:
		file_of(task, ARG1(regs), &f);
		if (f.type == S_IFREG || f.type == S_IFBLK)
			return f.flags & O_DSYNC ? PHASE_SYNC : PHASE_WRITE;
		return f.socket && f.socket == b->socket ? PHASE_CLIENT : PHASE_WAIT;
	case NR_fallocate:
	case NR_ftruncate:
		return PHASE_WRITE;
	case NR_fsync:
	case NR_fdatasync:
	case NR_sync_file_range:
	case NR_msync:
	case NR_sync:
	case NR_syncfs:
		return PHASE_SYNC;
	case NR_sendto:
	case NR_recvfrom:
	case NR_sendmsg:
	case NR_recvmsg:
		file_of(task, ARG1(regs), &f);
		return f.socket && f.socket == b->socket ? PHASE_CLIENT : PHASE_WAIT;
	case NR_epoll_wait:
	case NR_epoll_pwait:
	case NR_epoll_pwait2:
	case NR_poll:
	case NR_ppoll:
	case NR_select:
	case NR_pselect6:
		if (b->blocked_client)
			return PHASE_CLIENT;
		return b->engine == POSTGRESQL ? pg_waits_for(b) : PHASE_WAIT;
	case NR_io_uring_enter:
		/* PostgreSQL 18 with io_method=io_uring waits here for its own reads. */
		return b->engine == POSTGRESQL ? PHASE_READ : PHASE_WAIT;
	case -1:
		/* A page fault; one that waits for a device reads a mapped file. */
		return BPF_CORE_READ_BITFIELD(task, in_iowait) ? PHASE_READ : PHASE_WAIT;
	}
	return PHASE_WAIT;
}

static __always_inline void leave_cpu(struct backend *b, struct task_struct *task, bool runnable)
{
	if (!b->busy) {
		/* The wait for a CPU after the wake-up that brings the next request is part of it. */
		if (!runnable) {
			b->slept = 1;
			b->queued = queued_so_far(task);
		}
		return;
	}
	advance(b, task, bpf_ktime_get_ns());
	b->is_off = 1;
	if (runnable) {
		b->off_kind = PHASE_RUNQUEUE;
		return;
	}
	b->queued = queued_so_far(task);
	u32 kind = asleep_in(b, task);
	b->off_kind = kind;
	if (kind == PHASE_READ && BPF_CORE_READ_BITFIELD(task, in_iowait)) {
		/* The kernel counts a read call at its end: one count, one call. */
		u64 call = reads_so_far(task) + 1;
		if (b->missed_at != call) {
			b->missed_at = call;
			b->misses++;
		}
	}
}

static __always_inline void enter_cpu(struct backend *b)
{
	if (!b->busy || !b->is_off)
		return;
	u64 now = bpf_ktime_get_ns();
	b->off_ns = now - b->mark;
	b->mark = now;
	b->is_off = 0;
}

/* A request begins; it arrived when the task was woken for it. */
static __always_inline void begin(struct backend *b, struct task_struct *task, u64 now)
{
	u64 woken = 0;
	if (b->slept)
		woken = queued_so_far(task) - b->queued;
	b->slept = 0;
	b->is_off = 0;
	b->sent = 0;
	b->off_ns = 0;
	b->mark = now;
	b->start = now - woken;
	__builtin_memset(b->phase, 0, sizeof(b->phase));
	b->phase[PHASE_RUNQUEUE] = woken;
	b->reads = reads_so_far(task);
	b->missed_at = 0;
	b->misses = 0;
	b->socket_reads = 0;
	/* Last: a probe on the TLS library may be preempted on its way through here. */
	barrier();
	b->busy = 1;
}

static __always_inline u32 classic_slot(u64 ns)
{
	return (ns > 1000000) + (ns > 5000000) + (ns > 10000000) + (ns > 50000000) +
	       (ns > 100000000) + (ns > 500000000) + (ns > 1000000000) + (ns > 5000000000);
}

/* Adds the statement that ended at end, with its phases, to the statistics. */
static __noinline int observe(struct backend *b, struct task_struct *task, enum command command, u64 end, bool at_send)
{
	if (!b || !task)
		return 0;
	u32 key = b->server * COMMANDS + command;
	struct stats *s = bpf_map_lookup_elem(&statements, &key);
	if (!s) {
		lose(b->server, LOST_SERIES);
		return 0;
	}
	u64 ns = end - b->start;
	s->count++;
	s->sum_ns += ns;
	for (int i = 0; i < PHASES; i++)
		s->phase_ns[i] += at_send ? b->sent_phase[i] : b->phase[i];
	u64 reads = reads_so_far(task) - b->reads;
	if (reads > b->socket_reads)
		s->reads += reads - b->socket_reads;
	s->read_misses += b->misses;
	u32 slot = classic_slot(ns);
	if (slot <= CLASSIC)
		s->classic[slot]++;
	slot = native_slot(ns);
	if (slot < NATIVE_SLOTS)
		s->slots[slot]++;
	return 0;
}

#endif
