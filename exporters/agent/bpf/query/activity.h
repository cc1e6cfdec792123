/* What goes on at this moment: a walk over the tasks, started by the agent, that reports every statement under way
 * and every wait for storage. Nothing of it is on a statement's path.
 *
 * The walk reads a task's state while the task may change it on another CPU. Its clock has an invariant
 * that shows whether what was read is consistent: up to mark, every nanosecond since start is in exactly one
 * phase. */
#ifndef __QUERY_ACTIVITY_H__
#define __QUERY_ACTIVITY_H__

#include "connection.h"

/* What snapshot counts: the processes and threads that are followed, by server. Not those that have ended and that
 * their parents have not waited for yet: some never do. */
struct population {
	u64 tasks[MAX_SERVERS];
	u64 torn; /* statements that could not be read consistently */
	/* CPU time since the last walk of processes with a client that no program saw. */
	u64 uncounted_ns[MAX_SERVERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct population);
} populations SEC(".maps");

enum activity_kind {
	ACTIVITY_STATEMENT,  /* a statement is under way */
	ACTIVITY_BACKGROUND, /* one of the server's own processes waits for storage */
	ACTIVITY_IDLE,       /* no statement, but a transaction */
};

/* One record of the walk's answer. */
struct activity {
	u32 server;
	u32 pid;       /* in the initial PID namespace */
	u32 inner_pid; /* in the task's own PID namespace, as the server itself shows it */
	u8 kind;       /* enum activity_kind */
	u8 command;
	u8 phase; /* what it does now */
	u8 lock_wait;
	u32 statements;       /* under way, where one thread serves many connections; the rest is the first one's */
	u64 age_ns;           /* since the statement began, or since the last one ended */
	u64 wait_ns;          /* since the present wait began; 0 if it is ready to run */
	u64 phase_ns[PHASES]; /* of the statement so far, in full only what is certain */
};

/* Keep the types in the object file, from where the agent takes them. */
const struct activity *unused_activity __attribute__((unused));
const enum activity_kind *unused_activity_kind __attribute__((unused));

#define TASK_RUNNING 0

/* The array is on the stack, where the verifier wants to know each index. */
static __always_inline void add_phase(struct activity *a, u32 kind, u64 ns)
{
#pragma unroll
	for (u32 i = 0; i < PHASES; i++)
		a->phase_ns[i] += i == kind ? ns : 0;
}

/* Reports whether a task is on a CPU; a kernel for one CPU has no field for it. The kernel sets it after it has
 * added to run_delay. */
enum on_cpu {
	NOT_ON_CPU,
	ON_CPU,
	PERHAPS_ON_CPU,
};

static __always_inline enum on_cpu on_cpu(struct task_struct *task)
{
	if (!bpf_core_field_exists(task->on_cpu))
		return PERHAPS_ON_CPU;
	/* It became smaller in Linux 7: a load of the size that it has. */
	barrier();
	u64 on = BPF_CORE_READ_BITFIELD(task, on_cpu);
	barrier();
	return on ? ON_CPU : NOT_ON_CPU;
}

/* Copies a statement's clock; false if it changed meanwhile. */
static __always_inline bool read_clock(struct followed_task *followed, struct task_struct *task, struct activity *a, u64 now)
{
	u64 start = READ_ONCE(followed->start);
	u64 mark = READ_ONCE(followed->mark);
	u64 off_ns = READ_ONCE(followed->off_ns);
	u64 off_sync = READ_ONCE(followed->off_sync);
	u64 queued_before = READ_ONCE(followed->queued);
	u64 wait_start = READ_ONCE(followed->wait_start);
	u32 kind = READ_ONCE(followed->off_kind);
	bool off = READ_ONCE(followed->is_off);
	bool sent = READ_ONCE(followed->sent);
	/* In this order: when a program lets go, the length of its preemption is known. And before the phases:
	 * that time leaves `preempted` only after it got into its phase, so that either it is here or the sum does
	 * not add up. */
	bool locked = READ_ONCE(followed->locked) || READ_ONCE(followed->program_off_cpu);
	u64 preempted = READ_ONCE(followed->preempted);
	u64 sum = off_ns;
#pragma unroll
	for (int i = 0; i < PHASES; i++) {
		u64 ns = READ_ONCE(followed->phase[i]);
		sum += ns;
		a->phase_ns[i] = sent ? READ_ONCE(followed->sent_phase[i]) : ns;
	}
	enum on_cpu where = on_cpu(task);
	u64 delay = queued_so_far(task) - queued_before;
	bool ready = READ_ONCE(task->__state) == TASK_RUNNING;
	if (mark - start != sum || kind >= PHASES || READ_ONCE(followed->mark) != mark || READ_ONCE(followed->start) != start ||
		(READ_ONCE(followed->locked) || READ_ONCE(followed->program_off_cpu)) != locked || READ_ONCE(followed->preempted) != preempted)
		return false;
	/* Off the CPU, as far as its clock knows, and yet on one: it was not seen to come there, or is only just
	 * leaving. */
	bool unseen = off && where == ON_CPU;
	bool away = off ? !unseen : where == NOT_ON_CPU; /* not off: a program is preempted */
	a->age_ns = now > start ? now - start : 0;
	a->wait_ns = 0;
	a->phase = !away ? PHASE_CPU : !off || kind == PHASE_RUNQUEUE || ready ? PHASE_RUNQUEUE
									       : kind;
	if (a->phase == kind && away && now > wait_start && wait_start && kind != PHASE_RUNQUEUE)
		a->wait_ns = now - wait_start;
	if (a->phase == PHASE_WAIT && traits_of(followed->engine) & TRAIT_SHARES_SYNCS && awaits_sync(followed, task))
		a->phase = PHASE_SYNC;
	/* A statement that may have ended with its last send: what came after it may belong to none. */
	if (sent)
		return true;
	/* The last time off the CPU is given to its phases late, see settle(); how much of it was in the run queue
	 * is not known the moment the task comes to a CPU. */
	if (off_ns && where != NOT_ON_CPU) {
		u64 queued = queued_of(kind, off_ns, delay, preempted);
		u64 slept = off_ns - queued;
		u64 sync = synced_of(slept, off_sync);
		a->phase_ns[PHASE_RUNQUEUE] += queued;
		a->phase_ns[PHASE_SYNC] += sync;
		add_phase(a, kind, slept - sync);
	}
	/* And the time since mark, except what is not known yet. How much of a wait that is over was spent in the
	 * run queue shows only when the task runs. For how long a program of ours was preempted shows only when it
	 * lets go. Since when a task runs that was not seen to come to a CPU shows only at its next event. */
	if (now > mark && !unseen && !locked) {
		u64 since = now - mark;
		if (!off) {
			u64 still = preempted < since ? preempted : since;
			a->phase_ns[PHASE_RUNQUEUE] += still;
			a->phase_ns[PHASE_CPU] += since - still;
		} else if (kind == PHASE_RUNQUEUE) {
			a->phase_ns[PHASE_RUNQUEUE] += since;
		} else if (!ready) {
			add_phase(a, kind, since);
		}
	}
	return true;
}

/* Whether an idle thread waits for one client, not for any. */
static __always_inline bool awaits_client(struct task_struct *task)
{
	switch (SYSCALL_NR((struct pt_regs *)bpf_task_pt_regs(task))) {
	case NR_poll:
	case NR_ppoll:
	case NR_select:
	case NR_pselect6:
	case NR_read:
	case NR_recvfrom:
	case NR_recvmsg:
		return true;
	}
	return false;
}

/* Fills in what a task does; returns false if there is nothing to report. */
static __always_inline bool describe_activity(struct followed_task *followed, struct task_struct *task, bool *torn, struct activity *a)
{
	u64 now = bpf_ktime_get_ns();
	if (READ_ONCE(followed->busy)) {
		if (is_handed(followed, task))
			return false;
		for (int i = 0; i < 3; i++) {
			u8 request = READ_ONCE(followed->current);
			if (!(request & REQUEST_HAS_STATEMENT))
				return false;
			a->kind = ACTIVITY_STATEMENT;
			a->command = request & REQUEST_COMMAND_BITS;
			a->lock_wait = READ_ONCE(followed->lock_wait);
			a->statements = READ_ONCE(followed->waiting);
			/* A walk that is itself preempted may come back in a later statement. */
			if (!read_clock(followed, task, a, now) || READ_ONCE(followed->current) != request)
				continue;
			if (READ_ONCE(followed->shared))
				__builtin_memset(a->phase_ns, 0, sizeof(a->phase_ns));
			return true;
		}
		*torn = true;
		return false;
	}
	u64 mark = READ_ONCE(followed->mark);
	if (!followed->socket) {
		u32 kind = READ_ONCE(followed->off_kind);
		u64 wait_start = READ_ONCE(followed->wait_start);
		if (!READ_ONCE(followed->is_off) || READ_ONCE(task->__state) == TASK_RUNNING || on_cpu(task) == ON_CPU || !is_file_phase(kind))
			return false;
		a->kind = ACTIVITY_BACKGROUND;
		a->phase = kind;
		a->wait_ns = now > wait_start ? now - wait_start : 0;
		return true;
	}
	/* A thread of a pool has no session of its own. */
	if (!READ_ONCE(followed->in_transaction) || (!(traits_of(followed->engine) & TRAIT_PROCESS_PER_CONNECTION) && !awaits_client(task)))
		return false;
	a->kind = ACTIVITY_IDLE;
	a->age_ns = now > mark ? now - mark : 0;
	return true;
}

#define MAX_FDS 256          /* a client's socket is among a process's first ones */
#define UNCOUNTED_NS 1000000 /* less than that an idle process may take between two walks */

struct fd_walk {
	struct followed_task *followed;
	struct file **files;
	u32 n;
	bool ports; /* the server's are known: without them any TCP connection would be a client's */
	bool found;
};

static long fd_step(u32 i, struct fd_walk *w)
{
	if (i >= w->n)
		return 1;
	struct blocked_file f = {};
	file_at(w->files + i, &f);
	if (!f.socket || read_as(struct sock, f.socket, sk_type) != SOCK_STREAM)
		return 0;
	if (!w->ports && read_as(struct sock, f.socket, __sk_common.skc_family) != AF_UNIX)
		return 0;
	if (!from_client(w->followed, f.socket))
		return 0;
	w->found = true;
	return 1;
}

/* Reports whether a process has a client, by its files: the programs on sockets, whose silence is in question, do
 * not count. */
static __noinline bool has_client(struct followed_task *followed, struct task_struct *task)
{
	if (!followed || !task)
		return false;
	if (followed->socket)
		return true;
	struct fd_walk w = {.followed = followed, .files = task->files->fdt->fd, .n = task->files->fdt->max_fds};
	if (!w.files)
		return false;
	u32 id = followed->server;
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	w.ports = s && s->ports[0];
	bpf_loop(MAX_FDS, fd_step, &w, 0);
	return w.found;
}

/* A process that has a client and a CPU, but that the programs on sockets have not seen since the last walk, works
 * on what is not counted. Threads share their files, which show nothing. */
static __always_inline u64 count_uncounted(struct followed_task *followed, struct task_struct *task)
{
	u64 cpu = task->se.sum_exec_runtime;
	u64 used = cpu - followed->sampled_cpu;
	bool first = !followed->sampled_cpu;
	u32 socket_runs = READ_ONCE(followed->socket_runs);
	bool silent = socket_runs == followed->sampled_socket_runs && !READ_ONCE(followed->busy);
	followed->sampled_cpu = cpu;
	followed->sampled_socket_runs = socket_runs;
	if (first || !silent || used < UNCOUNTED_NS || !(traits_of(followed->engine) & TRAIT_PROCESS_PER_CONNECTION) ||
		followed->leader || !has_client(followed, task))
		return 0;
	return used;
}

/* Counts what is followed, because task storage cannot be listed from user space, and writes a
 * struct activity for each task that does something. */
SEC("iter/task")
int snapshot(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	u32 zero = 0;
	struct population *p = bpf_map_lookup_elem(&populations, &zero);
	if (!task || !p || READ_ONCE(task->exit_state))
		return 0;
	struct followed_task *followed = followed_task_of(task);
	if (!followed)
		return 0;
	struct activity a = {};
	bool torn = false;
	a.server = READ_ONCE(followed->server);
	if (describe_activity(followed, task, &torn, &a)) {
		a.pid = task->pid;
		a.inner_pid = inner_pid(task);
		/* Without room left the kernel hands out what there is and calls again for this task. */
		if (bpf_seq_write(ctx->meta->seq, &a, sizeof(a)))
			return 0;
	}
	p->torn += torn;
	u64 uncounted = count_uncounted(followed, task);
	u32 server = READ_ONCE(followed->server);
	if (server < MAX_SERVERS) {
		p->tasks[server]++;
		p->uncounted_ns[server] += uncounted;
	}
	return 0;
}

#endif
