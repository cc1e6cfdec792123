/* For tracing (trace.h): how long a server's task slept, and who woke it. What a task has waited for is what
 * whoever woke it did until then: the end of a block request, another session that has flushed the log for both,
 * or a task of the kernel or a program, such as a journal's or that of a file system in user space. Those are
 * helpers, and their own sleeps are reported from then on. */
#ifndef __QUERY_WAKES_H__
#define __QUERY_WAKES_H__

#include "../arch.h"
#include "state.h"

#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_NOLOAD 0x400

/* A helper that nobody has waited for so long is forgotten, ns. */
#define HELPER_KEPT 30000000000ULL

struct helper {
	u64 since;  /* its sleeps are reported from then on */
	u64 off;    /* when it fell asleep */
	u64 useful; /* when somebody last waited for it */
	u64 awake_since;
	u8 asleep; /* uninterruptibly, so most likely for a device */
	u8 direct; /* a server's task has waited for it; else another helper */
	struct wake wake;
};

/* By the task's number. All memory is there from the start: the scheduler's locks forbid to allocate any. The
 * agent gives it its size if it traces. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct helper);
} helpers SEC(".maps");

static __always_inline struct helper *helper_of(struct task_struct *task)
{
	u32 pid = task->pid;
	return pid ? bpf_map_lookup_elem(&helpers, &pid) : NULL;
}

static __always_inline bool is_file_phase(u32 phase)
{
	return phase == PHASE_READ || phase == PHASE_WRITE || phase == PHASE_SYNC;
}

/* What a task is at that wakes another one, as its saved registers show. An interrupt during a call looks like the
 * call; user space knows which waits that leaves open. */
static __always_inline u8 wake_reason_of(struct task_struct *waker)
{
	if (!waker->pid)
		return WAKE_OTHER;
	if (!waker->mm)
		return WAKE_KERNEL;
	long nr = SYSCALL_NR((struct pt_regs *)bpf_task_pt_regs(waker));
	switch (nr) {
	case NR_futex:
	case NR_semop:
	case NR_semtimedop:
	case NR_kill:
	case NR_tkill:
	case NR_tgkill:
	case NR_write:
	case NR_writev:
	case NR_sendto:
	case NR_sendmsg:
	case NR_splice:
	case NR_io_uring_enter:
		return WAKE_SIGNAL;
	}
	return nr < 0 ? WAKE_OTHER : WAKE_CALL;
}

/* Notes that the current task, or what has interrupted it, wakes one that is followed. */
static __always_inline void note_wake(struct wake *w, struct task_struct *waker, bool by_server)
{
	u32 zero = 0;
	struct completing *c = bpf_map_lookup_elem(&trace_completing, &zero);
	w->at = bpf_ktime_get_ns();
	w->flags = by_server ? TRACE_WAKER_SERVER : 0;
	w->request = 0;
	w->request_end = 0;
	w->pid = waker->pid;
	for (int i = 1; c && i >= 0; i--) {
		if (!c->request[i] || c->task[i] != (u64)waker)
			continue;
		w->request = c->request[i];
		w->request_end = c->end[i];
		w->reason = WAKE_REQUEST;
		return;
	}
	w->reason = wake_reason_of(waker);
}

/* From now on the waker's own sleeps are reported. The one that it wakes slept since `asleep`. */
static __always_inline void follow_helper(struct task_struct *waker, struct wake *w, u64 asleep, bool direct)
{
	if (w->reason < WAKE_SIGNAL || w->reason > WAKE_KERNEL || w->flags & TRACE_WAKER_SERVER)
		return;
	struct helper *h = helper_of(waker);
	if (h) {
		h->useful = w->at;
		if (h->since <= asleep)
			w->flags |= TRACE_WAKER_HELPER;
		if (direct)
			h->direct = 1;
		return;
	}
	struct helper new = {.since = w->at, .useful = w->at, .direct = direct};
	u32 pid = waker->pid;
	bpf_map_update_elem(&helpers, &pid, &new, BPF_ANY);
}

/* Reports a task's sleep that has ended at now. A wake from before it was awake last is not this one's. */
static __always_inline void trace_wait(struct trace_event *e, struct wake *w, u64 awake_since)
{
	e->woken_or_issued = e->end;
	if (w->at > awake_since) {
		e->woken_or_issued = w->at;
		e->reason_or_view = w->reason;
		e->flags = w->flags;
		e->waker = w->pid;
		e->request = w->request;
		e->request_end_or_on_cpu = w->request_end;
	}
	trace_submit(e);
}

/* A server's task comes to a CPU. */
static __noinline int trace_sleep(struct followed_task *followed, struct task_struct *task, u64 now)
{
	if (!followed || !task)
		return 0;
	u32 kind = followed->off_kind;
	struct trace_event *e = NULL;
	if (kind != PHASE_RUNQUEUE && (followed->busy || is_file_phase(kind)))
		e = trace_begin(TRACE_WAIT, followed->mark, now);
	if (e) {
		e->owner = followed->server;
		e->pid = task->pid;
		e->subtype = kind;
		trace_wait(e, &followed->wake, followed->awake_since);
	}
	followed->awake_since = now;
	return 0;
}

static __always_inline void helper_leaves(struct task_struct *task, unsigned int state)
{
	struct helper *h = helper_of(task);
	if (!h)
		return;
	h->asleep = state & TASK_UNINTERRUPTIBLE && !(state & TASK_NOLOAD);
	if (h->asleep)
		h->off = bpf_ktime_get_ns();
}

static __always_inline void helper_enters(struct task_struct *task)
{
	struct helper *h = helper_of(task);
	if (!h)
		return;
	u64 now = bpf_ktime_get_ns();
	struct trace_event *e = h->asleep ? trace_begin(TRACE_WAIT, h->off, now) : NULL;
	if (e) {
		e->pid = task->pid;
		e->subtype = TRACE_HELPER;
		trace_wait(e, &h->wake, h->awake_since);
	}
	h->asleep = 0;
	h->awake_since = now;
	if (now > h->useful + HELPER_KEPT) {
		u32 pid = task->pid;
		bpf_map_delete_elem(&helpers, &pid);
	}
}

#endif
