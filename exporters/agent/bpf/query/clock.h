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

#define O_CREAT 00000100
#define O_TRUNC 00001000
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

/* A program that changes the clock may itself lose the CPU: the probes on the TLS library on
 * every kernel, those on the socket where `preemptible` says so. The context switch must then not
 * touch what the program is in the middle of; it only notes how long the program stood still. */
static __always_inline void hold(struct backend *b)
{
	b->held = 1;
	barrier();
}

static __always_inline int release(struct backend *b)
{
	barrier();
	b->held = 0;
	return 0;
}

/* Accounts for everything up to now; the task is on a CPU. */
static __always_inline void advance(struct backend *b, struct task_struct *task, u64 now)
{
	settle(b, task);
	u64 ran = now - b->mark;
	u64 preempted = b->preempted;
	if (preempted) {
		b->preempted = 0;
		/* A part of it may have come after the clock was read. */
		if (preempted > ran)
			preempted = ran;
		b->phase[PHASE_RUNQUEUE] += preempted;
	}
	b->phase[PHASE_CPU] += ran - preempted;
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

/* Classes of PostgreSQL's wait events, see wait_classes.h there. */
#define PG_WAIT_LOCK 0x03
#define PG_WAIT_IO 0x0a

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
	b->lock_wait = event >> 24 == PG_WAIT_LOCK;
	return event >> 24 == PG_WAIT_IO ? PHASE_READ : PHASE_WAIT;
}

/* Opening a file looks for it, or makes or empties it. */
static __always_inline u32 opens(u64 flags)
{
	return flags & (O_CREAT | O_TRUNC) ? PHASE_WRITE : PHASE_READ;
}

/* The phase of a task that goes to sleep: by the system call it is in. Calls on the file system's
 * names and sizes are reads where they look and writes where they change something. */
static __noinline u32 asleep_in(struct backend *b, struct task_struct *task)
{
	if (!b || !task)
		return PHASE_WAIT;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct blocked_file f = {};
	b->lock_wait = 0;
	b->read_call = 0;
	switch (SYSCALL_NR(regs)) {
	case NR_read:
	case NR_readv:
	case NR_pread64:
	case NR_preadv:
	case NR_preadv2:
		file_of(task, ARG1(regs), &f);
		b->read_call = f.type == S_IFREG || f.type == S_IFBLK;
		if (b->read_call)
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
	case NR_truncate:
	case NR_copy_file_range:
	case NR_unlink:
	case NR_unlinkat:
	case NR_rename:
	case NR_renameat:
	case NR_renameat2:
	case NR_link:
	case NR_linkat:
	case NR_symlink:
	case NR_symlinkat:
	case NR_mkdir:
	case NR_mkdirat:
	case NR_rmdir:
	case NR_close: /* the last one of a file whose name is gone frees its blocks */
		return PHASE_WRITE;
	case NR_open:
		return opens(ARG2(regs));
	case NR_openat:
		return opens(ARG3(regs));
	case NR_stat:
	case NR_lstat:
	case NR_fstat:
	case NR_newfstatat:
	case NR_statx:
	case NR_statfs:
	case NR_fstatfs:
	case NR_access:
	case NR_faccessat:
	case NR_faccessat2:
	case NR_readlink:
	case NR_readlinkat:
	case NR_getdents64:
	case NR_fadvise64:
	case NR_readahead:
		return PHASE_READ;
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

/* The request that is being worked on, or the part of it that has come. */
static __always_inline u8 current_request(struct backend *b)
{
	if (b->engine == POSTGRESQL && b->pending_tail != b->pending_head)
		return b->pending[b->pending_head & (PENDING - 1)];
	return b->request;
}

/* The statement under way will not end: its session ended, or the protocol is lost. It is not
 * counted, but its time was shown while it ran and stays. */
static __noinline int abandon(struct backend *b, struct task_struct *task, u64 now)
{
	if (!b || !task || !b->busy)
		return 0;
	u8 request = current_request(b);
	if (!(request & HAS_STATEMENT))
		return 0;
	u32 key = b->server * COMMANDS + (request & COMMAND_BITS);
	struct stats *s = bpf_map_lookup_elem(&statements, &key);
	if (!s)
		return 0;
	advance(b, task, now);
	for (int i = 0; i < PHASES; i++)
		__sync_fetch_and_add(&s->phase_ns[i], b->phase[i]);
	return 0;
}

/* The number of a socket's inode: unlike its address, it is not used again. 0 of one that is closed. */
static __always_inline u64 inode_of(u64 sk)
{
	struct socket *s = BPF_CORE_READ((struct sock *)sk, sk_socket);
	return s ? BPF_CORE_READ((struct socket_alloc *)s, vfs_inode.i_ino) : 0;
}

/* Whether the client's socket is closed, or another one at the address of one that was: a MySQL
 * thread may serve them one after the other. */
static __always_inline bool is_another(struct backend *b, u64 sk)
{
	return b->engine == MYSQL && b->socket_inode != inode_of(sk);
}

/* A MySQL thread's client is gone, and so is what it asked for and was not answered. */
static __always_inline void end_session(struct backend *b, struct task_struct *task, u64 now)
{
	abandon(b, task, now);
	b->busy = 0;
	b->sent = 0;
	b->request = 0;
	b->file_transfer = NO_TRANSFER;
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

static __always_inline void leave_cpu(struct backend *b, struct task_struct *task, bool runnable)
{
	u64 now;
	if (b->held) {
		b->preempted_at = bpf_ktime_get_ns();
		return;
	}
	if (!b->busy) {
		/* The wait for a CPU after the wake-up that brings the next request is part of it. */
		if (!runnable) {
			b->slept = 1;
			b->queued = queued_so_far(task);
			/* It has no client: one of the server's own, which may wait for the disk. */
			if (!b->socket) {
				now = bpf_ktime_get_ns();
				fall_asleep(b, asleep_in(b, task), now - b->mark, now);
				b->mark = now;
				b->is_off = 1;
			}
		}
		return;
	}
	now = bpf_ktime_get_ns();
	u64 ran = now - b->mark;
	advance(b, task, now);
	b->is_off = 1;
	if (runnable) {
		b->off_kind = PHASE_RUNQUEUE;
		return;
	}
	b->queued = queued_so_far(task);
	u32 kind = asleep_in(b, task);
	if (kind == PHASE_WAIT && b->engine == MYSQL && is_another(b, b->socket)) {
		end_session(b, task, now);
		b->slept = 1;
		return;
	}
	fall_asleep(b, kind, ran, now);
	if (b->read_call && BPF_CORE_READ_BITFIELD(task, in_iowait)) {
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
	if (b->held) {
		b->preempted += bpf_ktime_get_ns() - b->preempted_at;
		return;
	}
	if (!b->is_off)
		return;
	u64 now = bpf_ktime_get_ns();
	if (b->busy)
		b->off_ns = now - b->mark;
	b->mark = now;
	b->is_off = 0;
}

#define SIGURG 23

/* Whether the task has been woken by SIGURG and has not read it yet. */
static __always_inline bool wakeup_pending(struct task_struct *task)
{
	return BPF_CORE_READ(task, signal, shared_pending.signal.sig[0]) & 1UL << (SIGURG - 1);
}

/* A request begins; it arrived when the task was woken for it. */
static __always_inline void begin(struct backend *b, struct task_struct *task, u64 now)
{
	u64 woken = 0;
	if (b->slept)
		woken = queued_so_far(task) - b->queued;
	b->slept = 0;
	b->is_off = 0;
	b->wait_start = 0;
	b->preempted = 0;
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
	b->wakeups = b->unread_wakeup && wakeup_pending(task);
	b->unread_wakeup = 0;
	b->behind = 0;
	b->busy = 1;
}

static __always_inline u32 classic_slot(u64 ns)
{
	return (ns > 1000000) + (ns > 5000000) + (ns > 10000000) + (ns > 50000000) +
	       (ns > 100000000) + (ns > 500000000) + (ns > 1000000000) + (ns > 5000000000);
}

/* Adds the statement that ended at end, with its phases, to the statistics. */
static __noinline int observe(struct backend *b, struct task_struct *task, u8 request, u64 end, bool at_send)
{
	if (!b || !task)
		return 0;
	u32 key = b->server * COMMANDS + (request & COMMAND_BITS);
	struct stats *s = bpf_map_lookup_elem(&statements, &key);
	if (!s) {
		lose(b->server, LOST_SERIES);
		return 0;
	}
	u64 ns = end - b->start;
	add(&s->count, 1);
	add(&s->sum_ns, ns);
	for (int i = 0; i < PHASES; i++)
		add(&s->phase_ns[i], at_send ? b->sent_phase[i] : b->phase[i]);
	u64 reads = reads_so_far(task) - b->reads;
	b->unread_wakeup = b->wakeups && wakeup_pending(task);
	u64 not_hits = (u64)b->socket_reads + b->wakeups - b->unread_wakeup + b->misses;
	if (reads > not_hits)
		add(&s->read_hits, reads - not_hits);
	add(&s->read_misses, b->misses);
	if (request & UNKNOWN)
		add(&s->unknown, 1);
	if (b->behind) {
		add(&s->pipelined, 1);
		add(&s->pipelined_ns, b->behind);
	}
	u32 slot = classic_slot(ns);
	if (slot <= CLASSIC)
		add(&s->classic[slot], 1);
	slot = native_slot(ns);
	if (slot < NATIVE_SLOTS)
		add(&s->slots[slot], 1);
	return 0;
}

#endif
