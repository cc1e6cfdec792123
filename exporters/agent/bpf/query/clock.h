/* Where a statement's time goes. Between its start and its end every nanosecond is given to
 * exactly one phase: on a CPU (cpu), ready to run but not running (runqueue), or asleep, and
 * then by the system call it sleeps in. Time on a CPU inside a system call is cpu, so that a
 * read from the page cache costs cpu and only a read that waits costs read.
 *
 * No system call is traced: sched_switch runs in the task that goes to sleep, and its saved
 * user registers name the call. */
#ifndef __QUERY_CLOCK_H__
#define __QUERY_CLOCK_H__

#include "../arch.h"
#include "../uapi.h"
#include "state.h"
#include "cost.h"
#include "query_id.h"
#include "syncs.h"
#include "wakes.h"

#define O_CREAT 00000100
#define O_TRUNC 00001000
#define O_DSYNC 00010000

static __always_inline u64 queued_so_far(struct task_struct *task)
{
	return bpf_core_field_exists(task->sched_info.run_delay) ? task->sched_info.run_delay : 0;
}

static __always_inline u64 reads_so_far(struct task_struct *task)
{
	return bpf_core_field_exists(task->ioac.syscr) ? task->ioac.syscr : 0;
}

/* How much of a time off the CPU was in the run queue: all of it, or by how much run_delay grew since then,
 * without its growth while a program was preempted afterwards. */
static __always_inline u64 queued_of(u32 kind, u64 off_ns, u64 delay, u64 preempted)
{
	if (kind == PHASE_RUNQUEUE)
		return off_ns;
	u64 queued = delay > preempted ? delay - preempted : 0;
	return queued < off_ns ? queued : off_ns;
}

/* How much of a sleep was a wait for another thread's sync. */
static __always_inline u64 synced_of(u64 slept, u64 off_sync)
{
	return off_sync < slept ? off_sync : slept;
}

/* Gives the last time off the CPU to its phases. It is done late because the kernel adds
 * the time in the run queue to run_delay only after sched_switch. */
static __always_inline void settle(struct followed_task *followed, struct task_struct *task)
{
	if (!followed->off_ns)
		return;
	u64 queued = queued_of(followed->off_kind, followed->off_ns, queued_so_far(task) - followed->queued, followed->preempted);
	u32 kind = followed->off_kind;
	u64 slept = followed->off_ns - queued;
	u64 sync = synced_of(slept, followed->off_sync);
	followed->phase[PHASE_RUNQUEUE] += queued;
	followed->phase[PHASE_SYNC] += sync;
	if (kind < PHASES)
		followed->phase[kind] += slept - sync;
	followed->off_ns = 0;
	followed->off_sync = 0;
}

/* A program that changes the clock may itself lose the CPU: the probes on the TLS library on every kernel, those
 * on the socket if `preemptible` is set. The context switch must then not touch what the program is in the middle
 * of; it only notes how long the program was preempted. */
static __always_inline void clock_lock(struct followed_task *followed)
{
	followed->locked = 1;
	barrier();
}

/* The part of `preempted` that came after the clock was read as now. */
static __always_inline u64 preempted_after(struct followed_task *followed, u64 now)
{
	return followed->preempted && followed->preempted_at >= now ? followed->preempted_last : 0;
}

/* The program that holds the task goes on at that time. */
static __always_inline void program_resumed(struct followed_task *followed, u64 at)
{
	u64 ns = at > followed->preempted_at ? at - followed->preempted_at : 0;
	followed->preempted_last = ns;
	followed->preempted += ns;
	followed->program_off_cpu = 0;
}

/* The task came to a CPU at that time. */
static __always_inline void on_cpu_since(struct followed_task *followed, struct task_struct *task, u64 at)
{
	if (tracing)
		trace_sleep(followed, task, at);
	if (followed->busy)
		followed->off_ns = at - followed->mark;
	followed->mark = at;
	followed->is_off = 0;
}

/* Some virtual machines' kernels skip the programs in a switch where the task that leaves the CPU is their own. Then
 * the programs miss that a task came to a CPU. The scheduler has that time (sched_info.last_arrival) by its own clock.
 * The clock's offset to ours is measured at each switch that is seen; as the clocks drift apart, it is used for
 * OFFSET_KEPT.
 *
 * An example: a switch is seen at 5,000 by our clock and 2,000 by the scheduler's, so the offset is 3,000. The next
 * one is missed, and the scheduler has 2,700 for it: it was at 5,700. */
#define OFFSET_KEPT 10000000000ULL
#define OFFSET_ERROR 1000000ULL
#define NEVER 1 /* as an arrival: it is not known */

/* When the task last came to a CPU, by the scheduler's clock; 0 where the kernel does not report it. */
static __always_inline u64 last_arrival(struct task_struct *task)
{
	return bpf_core_field_exists(task->sched_info.last_arrival) ? task->sched_info.last_arrival : 0;
}

/* The last arrival since the task has left; the kernel does not note each. */
static __always_inline u64 arrival_since(struct followed_task *followed, struct task_struct *task)
{
	u64 arrival = last_arrival(task);
	return arrival && arrival != followed->left ? arrival : NEVER;
}

/* The task came to a CPU at mark, and nothing has happened since. */
static __always_inline void take_clock_offset(struct followed_task *followed, struct task_struct *task)
{
	u64 arrival = arrival_since(followed, task);
	if (arrival == NEVER)
		return;
	followed->arrival = arrival;
	followed->clock_offset = followed->mark - arrival;
}

/* Returns, by our clock, when a task that had left at `left` came to a CPU, of an arrival that the programs missed. If
 * that is not known, it returns now: whoever read the state meanwhile read that the task was away. */
static __always_inline u64 time_of_arrival(struct followed_task *followed, u64 arrival, u64 left, u64 now)
{
	u64 at = arrival + followed->clock_offset;
	if (arrival == NEVER || !followed->clock_offset || arrival - followed->arrival > OFFSET_KEPT || at + OFFSET_ERROR < left || at > now)
		return now;
	return at < left ? left : at;
}

/* A preempted program resumes, and that was not seen. */
static __noinline int resume_missed(struct followed_task *followed, struct task_struct *task)
{
	if (followed && task)
		program_resumed(followed, time_of_arrival(followed, arrival_since(followed, task), followed->preempted_at, bpf_ktime_get_ns()));
	return 0;
}

static __always_inline int clock_unlock(struct followed_task *followed, struct task_struct *task)
{
	if (followed->program_off_cpu)
		resume_missed(followed, task);
	barrier();
	followed->locked = 0;
	return 0;
}

/* Makes up for an arrival that was not seen. */
static __noinline int switch_in_missed(struct followed_task *followed, struct task_struct *task, u64 now)
{
	if (!followed || !task)
		return 0;
	u64 at = time_of_arrival(followed, followed->unseen ?: arrival_since(followed, task), followed->mark, now);
	on_cpu_since(followed, task, at);
	followed->unseen = 0;
	/* Where the arrival is not known, a program may have been preempted before: that is in the time away. */
	if (at > followed->preempted_at)
		followed->preempted = 0;
	return 0;
}

/* Accounts for everything up to now; the task is on a CPU. */
static __always_inline void advance(struct followed_task *followed, struct task_struct *task, u64 now)
{
	if (followed->program_off_cpu)
		resume_missed(followed, task);
	if (followed->is_off)
		switch_in_missed(followed, task, now);
	else if (followed->off_ns && !followed->preempted)
		take_clock_offset(followed, task);
	settle(followed, task);
	u64 ran = now - followed->mark;
	u64 preempted = followed->preempted;
	if (preempted) {
		/* What came after the clock was read is left for the next time. */
		u64 left = preempted_after(followed, now);
		preempted -= left;
		if (preempted > ran) {
			left += preempted - ran;
			preempted = ran;
		}
		followed->phase[PHASE_RUNQUEUE] += preempted;
		/* In this order, see read_clock(). Another CPU of arm64 may see it otherwise, within nanoseconds. */
		barrier();
		followed->preempted = left;
		barrier();
	}
	followed->phase[PHASE_CPU] += ran - preempted;
	followed->mark = now;
}

struct blocked_file {
	u32 flags;
	u32 type;
	u64 socket;
};

/* Describes the file in a place of a task's table. */
static __always_inline void file_at(struct file **place, struct blocked_file *f)
{
	u64 file = read_pointer(place);
	if (!file)
		return;
	f->flags = read_as(struct file, file, f_flags);
	f->type = read_as(struct inode, read_as(struct file, file, f_inode), i_mode) & S_IFMT;
	if (f->type == S_IFSOCK)
		f->socket = (u64)read_as(struct socket, read_as(struct file, file, private_data), sk);
}

static __always_inline void file_of(struct task_struct *task, u32 fd, struct blocked_file *f)
{
	file_at(task->files->fdt->fd + fd, f);
}

/* Whether a system call waits for one of several files. */
static __always_inline bool is_poll(long nr)
{
	switch (nr) {
	case NR_epoll_wait:
	case NR_epoll_pwait:
	case NR_epoll_pwait2:
	case NR_poll:
	case NR_ppoll:
	case NR_select:
	case NR_pselect6:
		return true;
	}
	return false;
}

/* Opening a file looks for it, or makes or empties it. */
static __always_inline u32 opens(u64 flags)
{
	return flags & (O_CREAT | O_TRUNC) ? PHASE_WRITE : PHASE_READ;
}

#define READ_CALL 0x100 /* with PHASE_READ: a read call on a file */

/* Returns the phase of a task that is asleep: by the system call it is in. Calls on the file system's names and
 * sizes are reads where they query and writes where they change something. Changes nothing, so that readers may
 * call it, too. */
static __noinline u32 sleeps_in(struct followed_task *followed, struct task_struct *task)
{
	if (!followed || !task)
		return PHASE_WAIT;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	struct blocked_file f = {};
	long nr = SYSCALL_NR(regs);
	switch (nr) {
	case NR_read:
	case NR_readv:
	case NR_pread64:
	case NR_preadv:
	case NR_preadv2:
		file_of(task, ARG1(regs), &f);
		if (f.type == S_IFREG || f.type == S_IFBLK)
			return PHASE_READ | READ_CALL;
		return f.socket && f.socket == followed->socket ? PHASE_CLIENT : PHASE_WAIT;
	case NR_write:
	case NR_writev:
	case NR_pwrite64:
	case NR_pwritev:
	case NR_pwritev2:
		file_of(task, ARG1(regs), &f);
		if (f.type == S_IFREG || f.type == S_IFBLK)
			return f.flags & O_DSYNC ? PHASE_SYNC : PHASE_WRITE;
		return f.socket && f.socket == followed->socket ? PHASE_CLIENT : PHASE_WAIT;
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
		return f.socket && f.socket == followed->socket ? PHASE_CLIENT : PHASE_WAIT;
	case -1:
		/* A page fault; one that waits for a device reads a mapped file. */
		return BPF_CORE_READ_BITFIELD(task, in_iowait) ? PHASE_READ : PHASE_WAIT;
	}
	return followed->blocked_client && is_poll(nr) ? PHASE_CLIENT : PHASE_WAIT;
}

/* The same of one that goes to sleep. */
static __always_inline u32 asleep_in(struct followed_task *followed, struct task_struct *task)
{
	u32 kind = sleeps_in(followed, task);
	followed->lock_wait = 0;
	followed->read_call = kind & READ_CALL ? 1 : 0;
	return kind & ~READ_CALL;
}

/* Statements that one task began and another one answers: the beginning of the latest one, by the first task's
 * number. That one learns of it when it reads the map: what it has under way is always the latest that it began. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u64);
} handed SEC(".maps");

/* Several tasks may take from the same one at once. */
#define HAND_TRIES 4

/* A statement that the task with this number began at start is another one's now. */
static __always_inline void hand_over(u32 pid, u64 start)
{
	for (int i = 0; i < HAND_TRIES; i++) {
		u64 *latest = bpf_map_lookup_elem(&handed, &pid);
		if (!latest) {
			if (!bpf_map_update_elem(&handed, &pid, &start, BPF_NOEXIST))
				return;
			continue;
		}
		u64 seen = *latest;
		if (seen >= start || __sync_val_compare_and_swap(latest, seen, start) == seen)
			return;
	}
}

/* Whether the statement that a task has under way is another's by now. */
static __always_inline bool is_handed(struct followed_task *followed, struct task_struct *task)
{
	u32 pid = task->pid;
	u64 *start = bpf_map_lookup_elem(&handed, &pid);
	return start && *start == followed->start;
}

/* The statement under way will not end: its session ended, or the protocol is lost. It is not
 * counted, but its time was shown while it ran and stays. */
static __noinline int abandon(struct followed_task *followed, struct task_struct *task, u64 now)
{
	if (!followed || !task || !followed->busy)
		return 0;
	u8 request = followed->current;
	if (!(request & REQUEST_HAS_STATEMENT) || is_handed(followed, task))
		return 0;
	u32 key = followed->server * COMMANDS + (request & REQUEST_COMMAND_BITS);
	struct stats *s = bpf_map_lookup_elem(&statements, &key);
	if (!s)
		return 0;
	advance(followed, task, now);
	for (int i = 0; i < PHASES; i++)
		__sync_fetch_and_add(&s->all.phase_ns[i], followed->phase[i]);
	return 0;
}

/* The number of a socket's inode: unlike its address, it is not used again. 0 of one that is closed. */
static __always_inline u64 socket_inode_of(u64 sk)
{
	struct socket *s = read_as(struct sock, sk, sk_socket);
	return s ? read_as(struct socket_alloc, s, vfs_inode.i_ino) : 0;
}

/* Whether the client's socket is closed, or another one at the address of one that was. */
static __always_inline bool is_gone(struct followed_task *followed)
{
	return followed->socket_inode != socket_inode_of(followed->socket);
}

#define SIGURG 23

/* Whether the task has been woken by SIGURG and has not read it yet. */
static __always_inline bool wakeup_pending(struct task_struct *task)
{
	return task->signal->shared_pending.signal.sig[0] & 1UL << (SIGURG - 1);
}

/* How long before start the task was woken that slept until a request came: a CPU may take long to leave its idle
 * state, and the task reads only then. A wake-up from before it slept is another one's, and so may one by another
 * process. */
static __always_inline u64 wakeup_before(struct followed_task *followed, u64 start)
{
	u64 at = followed->wake.at;
	return followed->slept && !followed->unread_wakeup && followed->idle_since && at >= followed->idle_since && at < start ? start - at : 0;
}

/* A request begins; it arrived when the task was woken for it. */
static __always_inline void begin(struct followed_task *followed, struct task_struct *task, u64 now)
{
	u64 woken = 0;
	if (followed->program_off_cpu)
		resume_missed(followed, task);
	u64 stood_still = preempted_after(followed, now);
	if (followed->slept)
		woken = queued_of(PHASE_WAIT, ~0ULL, queued_so_far(task) - followed->queued, stood_still);
	if (tracing) {
		followed->wakeup = wakeup_before(followed, now - woken);
		followed->first_queued = woken;
	}
	followed->slept = 0;
	followed->is_off = 0;
	followed->wait_start = 0;
	followed->preempted = stood_still;
	followed->unseen = 0;
	followed->sent = 0;
	followed->complete = 0;
	followed->current = 0;
	followed->off_ns = 0;
	followed->off_sync = 0;
	followed->mark = now;
	followed->start = now - woken;
	__builtin_memset(followed->phase, 0, sizeof(followed->phase));
	followed->phase[PHASE_RUNQUEUE] = woken;
	followed->reads = reads_so_far(task);
	followed->missed_at = 0;
	followed->misses = 0;
	followed->socket_reads = 0;
	followed->wakeups = followed->unread_wakeup && wakeup_pending(task);
	followed->unread_wakeup = 0;
	followed->behind = 0;
	followed->taken_over = 0;
	if (tracing)
		followed->awake_since = now;
	followed->busy = 1;
}

/* The task goes on with what another one has begun: all of that is a wait, as far as this one knows. */
static __always_inline void take_over(struct followed_task *followed, struct connection *c, struct task_struct *task, u64 now)
{
	u32 pid = c->pid;
	u64 start = c->start;
	if (pid != task->pid)
		hand_over(pid, start);
	begin(followed, task, now);
	followed->phase[PHASE_RUNQUEUE] = 0;
	followed->phase[PHASE_WAIT] = now - start;
	followed->start = start;
	followed->current = c->request;
	followed->taken_over = pid != task->pid;
	followed->wakeup = 0;
	followed->first_queued = 0;
	c->pid = task->pid;
}

/* Reports a statement that has ended. */
static __noinline int trace_statement(struct followed_task *followed, struct task_struct *task, u8 request, u64 end)
{
	if (!followed || !task)
		return 0;
	struct trace_event *e = trace_begin(TRACE_STATEMENT, followed->start, end);
	if (!e)
		return 0;
	e->woken_or_issued = followed->start - followed->wakeup;
	e->request_end_or_on_cpu = followed->start + followed->first_queued;
	e->offset = followed->query_id;
	e->owner = followed->server;
	e->pid = task->pid;
	e->subtype = request & REQUEST_COMMAND_BITS;
	e->flags = followed->taken_over ? TRACE_TAKEN_OVER : 0;
	trace_submit(e);
	return 0;
}

/* Adds a statement that took so long, and made so many read calls that were neither misses nor on sockets. */
static __always_inline void add_statement(struct amounts *m, struct followed_task *followed, u64 ns, u64 hits, bool at_send, bool shared)
{
	add_to(&m->count, 1, shared);
	add_to(&m->sum_ns, ns, shared);
	for (int i = 0; i < PHASES; i++)
		add_to(&m->phase_ns[i], at_send ? followed->sent_phase[i] : followed->phase[i], shared);
	add_to(&m->read_hits, hits, shared);
	add_to(&m->read_misses, followed->misses, shared);
}

/* Adds it to its query's. Not static, so that the verifier goes through it once. */
__noinline int observe_query(struct followed_task *followed, u64 ns, u64 hits, u32 slot)
{
	if (!followed)
		return 0;
	struct per_query *q = query_of(followed->server, followed->query_id);
	if (!q) {
		count_loss_by(followed->server, NO_ID_ENTRY_NS, ns);
		return 0;
	}
	add_statement(&q->all, followed, ns, hits, false, true);
	if (slot < QUERY_SLOTS)
		add_to(&q->slots[slot], 1, true);
	return 0;
}

/* Adds the statement that ended at end, with its phases, to the statistics. */
static __noinline int observe(struct followed_task *followed, struct task_struct *task, u8 request, u64 end, bool at_send)
{
	if (!followed || !task)
		return 0;
	u32 key = followed->server * COMMANDS + (request & REQUEST_COMMAND_BITS);
	struct stats *s = bpf_map_lookup_elem(&statements, &key);
	if (!s) {
		count_loss(followed->server, LOST_SERIES);
		return 0;
	}
	if (tracing) {
		trace_statement(followed, task, request, end);
		add(&s->wakeup_ns, followed->wakeup);
	}
	u64 ns = end - followed->start;
	u64 reads = reads_so_far(task) - followed->reads;
	followed->unread_wakeup = followed->wakeups && wakeup_pending(task);
	u64 not_hits = (u64)followed->socket_reads + followed->wakeups - followed->unread_wakeup + followed->misses;
	u64 hits = reads > not_hits ? reads - not_hits : 0;
	add_statement(&s->all, followed, ns, hits, at_send, false);
	if (request & REQUEST_UNKNOWN)
		add(&s->unknown, 1);
	if (followed->behind) {
		add(&s->pipelined, 1);
		add(&s->pipelined_ns, followed->behind);
	}
	u32 slot = native_slot(ns);
	if (slot < NATIVE_SLOTS)
		add(&s->slots[slot], 1);
	if (query_entries && followed->query_id)
		observe_query(followed, ns, hits, query_slot(slot));
	return 0;
}

#endif
