//go:build ignore

/* Where the time of each database statement goes, per server and command.
 *
 * A server's process or thread is followed from its fork: the agent marks the main process (adopt), and forks of it
 * inherit the mark. The calls on the client's socket delimit statements; the time between is split at every context
 * switch. System calls are not traced. Only TLS needs uprobes, on its library. */
#include "state.h"
#include "connection.h"
#include "switch.h"
#include "tls.h"

char LICENSE[] SEC("license") = "GPL";

/* How much the programs do, for measuring what the parts of it cost. */
enum extent {
	EXTENT_ALL,
	EXTENT_LOOKUPS, /* they look for the task's state, and leave it */
	EXTENT_NOTHING, /* they run, and end at once */
};

/* Keeps the type in the object file, from where a benchmark takes the numbers. */
const enum extent *unused_extent __attribute__((unused));

/* Set by user space before loading; the verifier takes out what is not done. */
const volatile u32 bench_extent;

static __always_inline struct followed_task *followed_task_of(struct task_struct *task)
{
	if (bench_extent == EXTENT_NOTHING)
		return NULL;
	/* Nearly all tasks have no storage at all: one load shows it. */
	if (bpf_core_field_exists(task->bpf_storage) && !task->bpf_storage)
		return NULL;
	struct followed_task *followed = bpf_task_storage_get(&followed_tasks, task, NULL, 0);
	if (bench_extent == EXTENT_LOOKUPS)
		return NULL;
	/* Without an engine it is being marked at this moment, see mark(). */
	return followed && followed->engine ? followed : NULL;
}

/* User address of the bytes that the socket call at hand moves. */
static __always_inline u64 user_buffer(struct task_struct *task, long *nr)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	u64 arg = ARG2(regs);
	*nr = SYSCALL_NR(regs);
	if (*nr == NR_recvmsg || *nr == NR_sendmsg) {
		u64 iov = 0;
		bpf_core_read_user(&iov, sizeof(iov), &((struct user_msghdr *)arg)->msg_iov);
		arg = iov;
	} else if (*nr != NR_readv && *nr != NR_writev) {
		return arg;
	}
	u64 base = 0;
	bpf_core_read_user(&base, sizeof(base), &((struct iovec *)arg)->iov_base);
	return base;
}

/* Plain bytes from the client: read from its socket, or decrypted. */
static __noinline int client_sent(struct followed_task *followed, struct connection *c, struct names *names, u64 buf, u32 len)
{
	return followed && c ? proto_received(followed, c, names, buf, len) : 0;
}

/* Whether received bytes are encrypted; found out before the first message that can be read. */
static __always_inline bool encrypted(struct followed_task *followed, struct connection *c, struct task_struct *task, u64 buf, u32 len)
{
	if (!c->tls && c->understood)
		return false;
	u8 record = tls_record(buf, len);
	if (record && !c->tls) {
		followed->tls = 1;
		c->tls = 1;
	}
	if (!c->tls)
		return false;
	struct connection *e = encrypted_at(followed, c, task, followed->socket);
	if (e && record == TLS_DATA) {
		e->unread = 1;
		if (!followed->busy) {
			begin(followed, task, bpf_ktime_get_ns());
			e->begun = 1;
		}
	}
	return true;
}

/* The current task's call on this socket has received bytes, or failed. */
static __always_inline void received_locked(struct followed_task *followed, struct connection *c, struct task_struct *task, struct sock *sk, int ret)
{
	struct connection *plain = c->tls ? encrypted_at(followed, c, task, (u64)sk) : c;
	if (plain)
		proto_reads(followed, plain, task);
	if (ret <= 0) {
		if (ret == -EAGAIN) {
			followed->blocked_client = !(traits_of(followed->engine) & TRAIT_SERVES_MANY);
			if (plain)
				proto_drained(followed, plain);
		}
		return;
	}
	followed->blocked_client = 0;
	long nr;
	u64 buf = user_buffer(task, &nr);
	if (nr == NR_read || nr == NR_readv)
		followed->socket_reads++;
	if (!encrypted(followed, c, task, buf, ret))
		client_sent(followed, c, c->named ? names_of(sk, 0) : NULL, buf, ret);
}

/* Encrypted bytes went out. */
static __always_inline void sent_encrypted(struct followed_task *followed, struct connection *e, struct task_struct *task)
{
	if (followed->tls_session) {
		e->unread = 0;
		proto_sent(followed, e, task);
		return;
	}
	/* The library is not probed: this may have been a statement, or part of the login. The
	 * first answer is always the end of the handshake. */
	if (e->unread) {
		if (e->tls_answered)
			count_loss(followed->server, LOST_ENCRYPTED);
		e->tls_answered = 1;
	}
	e->unread = 0;
	if (!(traits_of(followed->engine) & TRAIT_SERVES_MANY))
		followed->busy = 0;
}

/* The current task's call on this socket has sent bytes, or failed. */
static __always_inline void sent_locked(struct followed_task *followed, struct connection *c, struct task_struct *task, struct sock *sk, int ret)
{
	if (ret <= 0) {
		if (ret == -EAGAIN)
			followed->blocked_client = !(traits_of(followed->engine) & TRAIT_SERVES_MANY);
		return;
	}
	followed->blocked_client = 0;
	if (c->tls) {
		struct connection *e = encrypted_at(followed, c, task, (u64)sk);
		if (e)
			sent_encrypted(followed, e, task);
		return;
	}
	long nr;
	u64 buf = user_buffer(task, &nr);
	proto_wrote(followed, c, sk, buf, ret);
	proto_sent(followed, c, task);
}

#include "hooks.h"

/* An empty array of programs: a tail call into it does nothing, but the kernel gives each run of a program with such a
 * call a stack of its own. Since Linux 6.13 a CPU has one stack for all runs of any other program, because the kernel
 * assumes that no run interrupts another one. That holds for probes of the kernel's functions, not of a library's. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u32);
} no_program SEC(".maps");

/* The end of a run of a probe on a library that has nothing to do; each of them has such an end. */
static __always_inline int end_of_probe(struct pt_regs *ctx)
{
	bpf_tail_call(ctx, &no_program, 0);
	return 0;
}

SEC("uprobe")
int tls_read(struct pt_regs *ctx)
{
	struct followed_task *followed = followed_task_of(bpf_get_current_task_btf());
	if (!followed)
		return end_of_probe(ctx);
	followed->tls_reader = CALL_ARG1(ctx);
	followed->tls_buffer = CALL_ARG2(ctx);
	return 0;
}

SEC("uretprobe")
int tls_read_done(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct followed_task *followed = followed_task_of(task);
	if (!followed || !followed->tls_buffer)
		return end_of_probe(ctx);
	u64 buf = followed->tls_buffer;
	followed->tls_buffer = 0;
	int len = CALL_RET(ctx);
	if (len <= 0 || !is_clients(followed))
		return 0;
	struct connection *e = bpf_task_storage_get(&encrypted_connections, task, NULL, 0);
	if (e) {
		clock_lock(followed);
		client_sent(followed, e, e->named ? names_of(NULL, 0) : NULL, buf, len);
		clock_unlock(followed, task);
	}
	return 0;
}

SEC("uprobe")
int tls_write(struct pt_regs *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct followed_task *followed = followed_task_of(task);
	if (!followed || !followed->tls_session || followed->tls_session != CALL_ARG1(ctx))
		return end_of_probe(ctx);
	int len = CALL_ARG3(ctx);
	struct connection *e = bpf_task_storage_get(&encrypted_connections, task, NULL, 0);
	if (e && len > 0)
		proto_wrote(followed, e, NULL, CALL_ARG2(ctx), len);
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(task_switched, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct followed_task *followed = followed_task_of(prev);
	if (followed) {
		struct timing t = timed(followed, prev);
		switch_out(followed, prev, preempt || !prev_state);
		timed_until_now(followed, &t);
	} else if (tracing)
		helper_leaves(prev, preempt ? 0 : prev_state);
	followed = followed_task_of(next);
	if (followed) {
		struct timing t = timed(followed, next);
		enter_cpu(followed, next);
		timed_until_now(followed, &t);
	} else if (tracing)
		helper_enters(next);
	return 0;
}

/* Attached only for tracing, and where a server's threads sync for one another. The woken task's lock is held here, so
 * that no task is preempted within it. */
SEC("tp_btf/sched_waking")
int BPF_PROG(task_waking, struct task_struct *task)
{
	struct task_struct *waker = bpf_get_current_task_btf();
	struct followed_task *followed = followed_task_of(task);
	struct helper *h = followed || !tracing ? NULL : helper_of(task);
	if (!followed && !h)
		return 0;
	struct followed_task *w = followed_task_of(waker);
	bool by_server = w != NULL;
	if (followed && traits_of(followed->engine) & TRAIT_SHARES_SYNCS && (followed->busy || !followed->socket)) {
		followed->woken_at = bpf_ktime_get_ns();
		followed->woken_sync = 0;
		if (w && waker->tgid == task->tgid)
			note_waker(followed, task, w, waker);
	}
	if (!tracing)
		return 0;
	if (followed) {
		note_wake(&followed->wake, waker, by_server);
		if (followed->is_off && is_file_phase(followed->off_kind))
			follow_helper(waker, &followed->wake, followed->mark, true);
	} else {
		note_wake(&h->wake, waker, by_server);
		if (h->asleep && h->direct)
			follow_helper(waker, &h->wake, h->off, false);
	}
	return 0;
}

#define SIGNAL_QUEUED 0 /* TRACE_SIGNAL_DELIVERED */

/* Processes wake each other with this signal and take each one with a read call. */
SEC("tp_btf/signal_generate")
int BPF_PROG(task_signalled, int sig, void *info, struct task_struct *task, int group, int result)
{
	if (sig != SIGURG || result != SIGNAL_QUEUED)
		return 0;
	struct followed_task *followed = followed_task_of(task);
	if (!followed || !(traits_of(followed->engine) & TRAIT_WAKES_BY_SIGNAL))
		return 0;
	if (followed->busy)
		__sync_fetch_and_add(&followed->wakeups, 1);
	else
		followed->unread_wakeup = 1;
	return 0;
}

/* Marks a task as a server's. The walk may be preempted here and the task run meanwhile: the engine comes last and
 * shows that all is there. */
static __always_inline struct followed_task *mark(struct task_struct *task, u32 server, u32 engine, bool leader, bool adopted)
{
	struct followed_task *followed = bpf_task_storage_get(&followed_tasks, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!followed) {
		count_loss(server, LOST_TASK);
		return NULL;
	}
	followed->server = server;
	followed->leader = leader;
	if (!followed->engine)
		followed->adopted = adopted;
	barrier();
	followed->engine = engine;
	return followed;
}

/* Process events for the agent: a process that may be a server began, or a server ended. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} process_events SEC(".maps");

/* A task that is followed has made another one, which has not run yet. */
static __always_inline int forked(struct task_struct *parent, struct task_struct *child)
{
	struct followed_task *p = followed_task_of(parent);
	if (!p)
		return 0;
	bool thread = parent->tgid == child->tgid;
	if (traits_of(p->engine) & TRAIT_PROCESS_PER_CONNECTION ? thread || !p->leader : !thread)
		return 0;
	mark(child, p->server, p->engine, false, false);
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(task_forked, struct task_struct *parent, struct task_struct *child)
{
	return forked(parent, child);
}

/* In its place where tracepoints' programs may be preempted: this one has the run queue's lock, so that it never
 * is. Not elsewhere, because that lock forbids to allocate memory. */
SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(task_started, struct task_struct *child)
{
	return forked(bpf_get_current_task_btf(), child);
}

#define SERVER_NAMES 32
#define NAME_BYTES 7

/* Set by user space before loading: the first bytes of the names of servers' programs, as numbers; 0 behind
 * the last. */
const volatile u64 server_names[SERVER_NAMES];

static __always_inline bool is_server_name(struct task_struct *task)
{
	u64 name = 0;
#pragma unroll
	for (u32 i = 0; i < NAME_BYTES; i++)
		name |= (u64)(u8)task->comm[i] << 8 * i;
	for (u32 i = 0; i < SERVER_NAMES && server_names[i]; i++)
		if (server_names[i] == name)
			return true;
	return false;
}

static __always_inline void report_process(u32 tgid)
{
	if (bpf_ringbuf_output(&process_events, &tgid, sizeof(tgid), 0))
		count_loss(0, LOST_PROCESS_EVENTS);
}

static __always_inline int executed(struct task_struct *task)
{
	if (is_server_name(task))
		report_process(task->tgid);
	return 0;
}

static __always_inline int ended(struct task_struct *task)
{
	struct followed_task *followed = followed_task_of(task);
	if (!followed)
		return 0;
	clock_lock(followed);
	abandon(followed, task, bpf_ktime_get_ns());
	followed->busy = 0;
	clock_unlock(followed, task);
	flusher_ends(followed, task);
	if (followed->leader && task->pid == task->tgid)
		report_process(task->tgid);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(task_executed, struct task_struct *task)
{
	u32 rank = program_enter(ctx, &program_groups, GROUP_EXECUTED);
	executed(task);
	return program_exit(&program_groups, GROUP_EXECUTED, rank);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(task_ended, struct task_struct *task)
{
	u32 rank = program_enter(ctx, &program_groups, GROUP_ENDED);
	ended(task);
	return program_exit(&program_groups, GROUP_ENDED, rank);
}

/* The agent's request to adopt: mark the process with this PID, as seen in that PID namespace, that started then. One
 * without an engine is the request to forget: all tasks that are marked with this server's number, of several servers
 * with that number those of one process and its children. */
struct adoption {
	u32 pid_namespace;
	u32 pid;
	u64 start_ticks;
	u32 server;
	enum engine engine;
	u32 marked; /* answer: tasks marked */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct adoption);
} adoptions SEC(".maps");

static __always_inline bool is_wanted(struct task_struct *task, struct adoption *a)
{
	if (task->start_boottime / CLOCK_TICK != a->start_ticks)
		return false;
	struct pid *pid = task->thread_pid;
	u32 level = pid->level;
	for (u32 i = 0; i < MAX_PID_NAMESPACES && i <= level; i++) {
		struct id_within id = id_at(pid, i);
		if (id.pid_namespace == a->pid_namespace)
			return id.nr == a->pid;
	}
	return false;
}

SEC("iter/task")
int adopt(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	u32 zero = 0;
	struct adoption *a = bpf_map_lookup_elem(&adoptions, &zero);
	if (!task || !a)
		return 0;
	struct followed_task *followed = followed_task_of(task);
	struct task_struct *main = task->group_leader;
	if (!a->engine) {
		if (followed && followed->server == a->server && (!a->pid || is_wanted(main, a) || is_wanted(task->real_parent, a))) {
			followed->engine = 0;
			a->marked++;
			/* Without storage it costs what any task does. */
			bpf_task_storage_delete(&followed_tasks, task);
			bpf_task_storage_delete(&encrypted_connections, task);
			bpf_task_storage_delete(&prepared_by_task, task);
		}
		return 0;
	}
	bool leader = is_wanted(main, a);
	if (!leader) {
		/* A client's process that was there before the agent. */
		if (!(traits_of(a->engine) & TRAIT_PROCESS_PER_CONNECTION) || main != task || !is_wanted(task->real_parent, a))
			return 0;
	}
	if (followed && followed->server == a->server)
		return 0;
	if (mark(task, a->server, a->engine, leader, true))
		a->marked++;
	return 0;
}

#include "activity.h"
