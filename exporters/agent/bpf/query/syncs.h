/* A thread's wait for another thread's sync. Where a server's threads flush its log for one another, a session sleeps
 * on a futex until that is done. Who wakes it shows what it has waited for: as long as that thread was in a sync
 * meanwhile, the session's wait is one for the sync. So a session is given what the leader of a group commit did for
 * it, and a wait for a lock stays one, however many others sync.
 *
 * InnoDB's log has a thread of its own that flushes it, and another one that wakes the sessions (since MySQL 8.0). The
 * sessions check again by themselves every now and then, by futexes with a timeout, so that nobody wakes about half of
 * them. So those futexes are remembered on which a flusher has woken a session, by their pages: a session that sleeps
 * on one waits for that flusher, whoever ends its sleep. */
#ifndef __QUERY_SYNCS_H__
#define __QUERY_SYNCS_H__

#include "../arch.h"
#include "state.h"

/* How many places each server has in the maps below. */
enum per_server {
	FLUSHERS = 8,
	EVENT_PAGES = 256, /* a power of two; InnoDB's events for its log have about 120 */
};

#define PAGES_AHEAD 4
#define PAGE_BITS 12

/* Syncs with no more than this between them are kept as one: one call sleeps several times. */
#define SAME_SYNC 200000ULL

/* A thread that wakes others on a flusher's behalf does so at once. */
#define PASSED_ON 100000ULL

/* A thread without a client that syncs what sessions wait for. User space clears them for another server. */
struct flusher {
	u32 pid;
	u64 since; /* it is asleep in a sync since then, or 0 */
	struct syncs syncs;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64 * FLUSHERS);
	__type(key, u32);
	__type(value, struct flusher);
} flushers SEC(".maps");

/* A page of user addresses with futexes on which sessions wait for a flusher. */
struct event_page {
	u64 page;
	u64 flusher; /* its place + 1 */
};

/* By server and the page's last bits. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64 * EVENT_PAGES);
	__type(key, u32);
	__type(value, struct event_page);
} event_pages SEC(".maps");

/* Keep the types in the object file, from where the agent takes them. */
const struct flusher *unused_flusher __attribute__((unused));
const struct event_page *unused_event_page __attribute__((unused));
const enum per_server *unused_per_server __attribute__((unused));

/* Notes that a thread was in a sync for ns between two times, or waited for one. Readers on other CPUs see ns last. */
static __always_inline void add_sync(struct syncs *s, u64 start, u64 end, u64 ns)
{
	struct sync *l = &s->last[s->n & (SYNCS - 1)];
	if (l->end && start >= l->end && start - l->end < SAME_SYNC) {
		start = l->start;
		ns += l->ns;
	} else {
		s->n++;
		l = &s->last[s->n & (SYNCS - 1)];
	}
	WRITE_ONCE(l->ns, 0);
	barrier();
	WRITE_ONCE(l->start, start);
	WRITE_ONCE(l->end, end);
	barrier();
	WRITE_ONCE(l->ns, ns);
}

/* For how long it was in one between two times. */
__noinline u64 synced_between(struct syncs *s, u64 from, u64 to)
{
	u64 sum = 0;
	if (!s)
		return 0;
	for (u32 i = 0; i < SYNCS; i++) {
		struct sync *l = &s->last[i];
		u64 ns = READ_ONCE(l->ns);
		barrier();
		u64 start = READ_ONCE(l->start), end = READ_ONCE(l->end);
		start = start > from ? start : from;
		end = end < to ? end : to;
		if (end <= start)
			continue;
		u64 both = end - start;
		sum += both < ns ? both : ns;
	}
	return sum;
}

static __always_inline struct flusher *flusher_at(u32 server, u32 place)
{
	u32 key = server * FLUSHERS + place - 1;
	return place && place <= FLUSHERS ? bpf_map_lookup_elem(&flushers, &key) : NULL;
}

/* The same of a flusher, with the sync that goes on. */
static __noinline u64 flushed_between(u32 server, u32 place, u64 from, u64 to)
{
	struct flusher *f = flusher_at(server, place);
	if (!f)
		return 0;
	u64 since = READ_ONCE(f->since);
	if (since && since < from)
		since = from;
	return (since && since < to ? to - since : 0) + synced_between(&f->syncs, from, to);
}

#define FUTEX_WAIT 0
#define FUTEX_WAKE 1
#define FUTEX_WAIT_BITSET 9
#define FUTEX_COMMAND 0x7f

/* The page of the futex on which a task sleeps that checks again after a while, or 0. */
static __always_inline u64 timed_futex_page(struct pt_regs *regs)
{
	u32 what = ARG2(regs) & FUTEX_COMMAND;
	if (!ARG4(regs) || (what != FUTEX_WAIT && what != FUTEX_WAIT_BITSET))
		return 0;
	return ARG1(regs) >> PAGE_BITS;
}

static __always_inline struct event_page *event_page_at(u32 server, u64 page)
{
	u32 key = server * EVENT_PAGES + (page & (EVENT_PAGES - 1));
	return server ? bpf_map_lookup_elem(&event_pages, &key) : NULL;
}

/* The place of the flusher that a sleeping task waits for by itself, or 0. */
static __always_inline u32 awaited_flusher(u32 server, struct pt_regs *regs)
{
	u64 page = timed_futex_page(regs);
	struct event_page *e = page ? event_page_at(server, page) : NULL;
	if (!e || READ_ONCE(e->page) != page)
		return 0;
	return READ_ONCE(e->flusher);
}

/* The place of a thread among a server's flushers, made if there is room; 0 if not. The thread finds it at its next
 * sync. */
static __noinline u32 flusher_place(u32 server, u32 pid)
{
	for (u32 i = 1; server && i <= FLUSHERS; i++) {
		struct flusher *f = flusher_at(server, i);
		if (!f)
			return 0;
		u32 other = __sync_val_compare_and_swap(&f->pid, 0, pid);
		if (!other || other == pid)
			return i;
	}
	return 0;
}

/* The same of the task itself, if it has one. */
static __noinline struct flusher *own_place(struct followed_task *followed, u32 pid)
{
	if (!followed || followed->socket || !followed->server)
		return NULL;
	struct flusher *f = flusher_at(followed->server, followed->flusher);
	if (f && f->pid == pid)
		return f;
	for (u32 i = 1; i <= FLUSHERS; i++) {
		f = flusher_at(followed->server, i);
		if (f && f->pid == pid) {
			followed->flusher = i;
			return f;
		}
	}
	return NULL;
}

/* A thread without a client has woken another one that slept for a while: which thread has that waited for, if it was
 * in a sync? A flusher passes on its own syncs only: InnoDB's log writer, which syncs at times, wakes the flusher. */
static __always_inline u32 wakes_for(struct followed_task *w, struct task_struct *waker, u64 synced, u64 now)
{
	u32 pid = waker->pid;
	barrier_var(pid); /* or the compiler makes one load of two kinds of pointers, which the verifier refuses */
	if (synced)
		return pid;
	if (now - w->mark >= PASSED_ON)
		return 0;
	if (w->off_kind == PHASE_SYNC)
		return pid;
	return w->flusher ? 0 : w->flushed_by;
}

/* A session waits for a flusher on this page; and most likely on the next ones, as InnoDB uses its events one after the
 * other. */
static __always_inline void remember_event(u32 server, u64 page, u32 place)
{
	for (u32 i = 0; i <= PAGES_AHEAD; i++) {
		struct event_page *e = event_page_at(server, page + i);
		if (!e)
			return;
		if (READ_ONCE(e->page) == page + i) {
			if (!i && READ_ONCE(e->flusher) == place)
				return;
			if (i)
				continue;
		}
		WRITE_ONCE(e->flusher, 0);
		barrier();
		WRITE_ONCE(e->page, page + i);
		barrier();
		WRITE_ONCE(e->flusher, place);
	}
}

/* Whether the waker wakes the task on the futex that it sleeps on. An interrupt during such a call that wakes another
 * task looks like the call, but for the address. */
static __always_inline bool wakes_on_futex(struct pt_regs *waker, struct pt_regs *regs)
{
	return SYSCALL_NR(waker) == NR_futex && SYSCALL_NR(regs) == NR_futex &&
	       (ARG2(waker) & FUTEX_COMMAND) == FUTEX_WAKE && ARG1(waker) == ARG1(regs);
}

/* A followed task is woken by another one of its process: for how long has that synced meanwhile? Both hold still: the
 * waker is the current task, and the kernel wakes a task once at a time. */
static __noinline int note_waker(struct followed_task *followed, struct task_struct *task, struct followed_task *w,
	struct task_struct *waker)
{
	if (!followed || !task || !w || !waker)
		return 0;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	if (!wakes_on_futex((struct pt_regs *)bpf_task_pt_regs(waker), regs))
		return 0;
	u64 now = followed->woken_at;
	u64 asleep = READ_ONCE(followed->mark);
	u64 synced = synced_between(&w->syncs, asleep, now);
	/* A thread without a client may have waited for work. */
	if (followed->socket)
		followed->woken_sync = synced;
	if (w->socket)
		return 0;
	u64 page = followed->socket ? timed_futex_page(regs) : 0;
	if (followed->socket && !page)
		return 0;
	u32 flusher = wakes_for(w, waker, synced, now);
	if (!flusher || flusher == task->pid)
		return 0;
	u32 place = page ? flusher_place(followed->server, flusher) : 0;
	if (place)
		remember_event(followed->server, page, place);
	else if (!followed->socket)
		followed->flushed_by = flusher;
	return 0;
}

/* A task has slept from then until now in the phase off_kind: was part of it a sync, or a wait for another thread's? */
static __noinline int slept_for_sync(struct followed_task *followed, struct task_struct *task, u64 from, u64 now)
{
	if (!followed || !task)
		return 0;
	u32 kind = followed->off_kind;
	u64 woken = followed->woken_at;
	u64 end = woken > from && woken < now ? woken : now;
	u64 ns = 0;
	followed->off_sync = 0;
	if (kind == PHASE_SYNC) {
		ns = end - from;
		struct flusher *f = own_place(followed, task->pid);
		if (f) {
			WRITE_ONCE(f->since, 0);
			add_sync(&f->syncs, from, end, ns);
		}
	} else if (followed->socket) {
		struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
		if (SYSCALL_NR(regs) != NR_futex)
			return 0;
		u32 place = awaited_flusher(followed->server, regs);
		ns = place ? flushed_between(followed->server, place, from, end) : end == woken ? followed->woken_sync
												: 0;
		if (ns > end - from)
			ns = end - from;
		followed->off_sync = ns;
	}
	if (ns)
		add_sync(&followed->syncs, end - ns, end, ns);
	return 0;
}

/* Whether a task sleeps until a flusher wakes it that is in a sync. Changes nothing. */
static __always_inline bool awaits_sync(struct followed_task *followed, struct task_struct *task)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	u32 place = SYSCALL_NR(regs) == NR_futex ? awaited_flusher(followed->server, regs) : 0;
	struct flusher *f = flusher_at(followed->server, place);
	return f && READ_ONCE(f->since);
}

/* A task falls asleep in a sync. */
static __always_inline void flusher_sleeps(struct followed_task *followed, struct task_struct *task, u64 now)
{
	struct flusher *f = own_place(followed, task->pid);
	if (f)
		WRITE_ONCE(f->since, now);
}

/* A task ends. */
static __always_inline void flusher_ends(struct followed_task *followed, struct task_struct *task)
{
	struct flusher *f = followed->flusher ? own_place(followed, task->pid) : NULL;
	if (f) {
		WRITE_ONCE(f->since, 0);
		WRITE_ONCE(f->pid, 0);
	}
}

#endif
