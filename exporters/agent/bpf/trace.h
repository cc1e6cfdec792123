/* One statement followed through the layers: the events that programs of several objects send to the agent's
 * collector `trace`. exporters/agent/trace joins them.
 *
 * Off unless user space sets `tracing` before loading and puts the maps below, which are the collector's, in place of
 * the object's own; else the verifier takes all of it out.
 *
 * An event is sent when what it is about has ended. Times are CLOCK_MONOTONIC.
 */
#ifndef __PLUMBLINE_TRACE_H__
#define __PLUMBLINE_TRACE_H__

const volatile bool tracing;

enum trace_kind {
	TRACE_STATEMENT, /* a statement: observe() */
	TRACE_WAIT,      /* a task slept: a server's, or one that such a task has waited for */
	TRACE_REQUEST,   /* a block request: block_rq_complete */
	TRACE_OPERATION, /* an operation of an engine or a replica: replica/track.h */
};

/* Who woke a task that slept. */
enum wake_reason {
	WAKE_UNSEEN,
	WAKE_REQUEST, /* the end of a block request, which `request` and `request_end_or_on_cpu` name */
	WAKE_SIGNAL,  /* a task in a call that wakes others: futex, semop, kill, write to a pipe or to FUSE */
	WAKE_CALL,    /* a task in another call */
	WAKE_KERNEL,  /* one of the kernel's own tasks */
	WAKE_OTHER,   /* an interrupt that is no block request's end, a timer for example */
};

/* What a wait is for that no server's task waits: the server's are for one of enum phase (query/state.h). */
enum trace_wait {
	TRACE_HELPER = 255,
};

struct trace_event {
	u64 start;
	u64 end;
	u64 woken_or_issued;       /* statement: wake-up, else its start; wait: wake-up; request: when its driver got it,
	                            * or 0 */
	u64 request;               /* request: address; wait: the request that woke the task; operation: its number on its
	                            * connection */
	u64 request_end_or_on_cpu; /* wait: when that request ended; statement: when the task had a CPU for it, else its
	                            * start */
	u64 offset;                /* request: on the device, in bytes; operation: in the volume; statement: its query
	                            * identifier, or 0 */
	u64 call_offset;           /* request: where in the file its call reads or writes; all ones without an offset */
	u32 size;                  /* bytes */
	u32 owner;                 /* statement, server's wait: the server; request: its device; operation: its process's
	                            * slot */
	u32 pid;                   /* the task: statement's, wait's, or the request's maker; in the first PID namespace */
	u32 tgid;                  /* request, operation: the process */
	u32 waker;                 /* wait: the task that woke it */
	u16 local_port;            /* operation: its connection's, 0 for a unix socket */
	u16 remote_port;           /* operation: of the connection's other end */
	u8 kind;                   /* enum trace_kind */
	u8 subtype;                /* statement: its command; wait: enum phase or TRACE_HELPER; request: REQ_OP_;
	                            * operation: enum wire_op */
	u8 reason_or_view;         /* wait: enum wake_reason; operation: enum view */
	u8 flags;                  /* enum trace_flag */
	u32 peer;                  /* operation: its connection's other end, or a replica's own address, as
	                            * replica/track.h numbers it */
};

enum trace_flag {
	TRACE_FAILED = 1,       /* request, operation */
	TRACE_WAKER_SERVER = 2, /* wait: the waker is a followed server's task, whose waits are reported */
	TRACE_WAKER_HELPER = 4, /* wait: the waker is another task, whose sleeps were reported when this one began */
	TRACE_TAKEN_OVER = 8,   /* statement: another task began it, so that waits are missing */
	TRACE_FLUSHES = 16,     /* request: the kernel flushes the device before it, or after */
};

/* The agent's map; 4096 is the least there can be. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} trace_events SEC(".maps");

/* Events that found no room in the ring. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} trace_lost SEC(".maps");

/* Keep the types in the object file, from where the agent takes them. */
const struct trace_event *unused_trace_event __attribute__((unused));
const enum trace_kind *unused_trace_kind __attribute__((unused));
const enum trace_flag *unused_trace_flag __attribute__((unused));
const enum wake_reason *unused_wake_reason __attribute__((unused));
const enum trace_wait *unused_trace_wait __attribute__((unused));

/* Room for an event, all zeros but for its kind and times; NULL, which is counted, if there is none. */
static __always_inline struct trace_event *trace_begin(enum trace_kind kind, u64 start, u64 end)
{
	struct trace_event *e = bpf_ringbuf_reserve(&trace_events, sizeof(*e), 0);
	if (!e) {
		u32 zero = 0;
		u64 *n = bpf_map_lookup_elem(&trace_lost, &zero);
		if (n)
			__sync_fetch_and_add(n, 1);
		return NULL;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->kind = kind;
	e->start = start;
	e->end = end;
	return e;
}

/* The agent reads at intervals: nobody is woken for an event. */
static __always_inline void trace_submit(struct trace_event *e)
{
	bpf_ringbuf_submit(e, BPF_RB_NO_WAKEUP);
}

/* The block requests whose ends are under way on a CPU: whoever is woken there meanwhile, with the
 * same task below, is woken by the inner one. Two, as the end of a device's request may be that of the request of the
 * device on top of it, too. */
struct completing {
	u64 request[2];
	u64 end[2];
	u64 task[2]; /* current at that time: another one has preempted it */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct completing);
} trace_completing SEC(".maps");

#endif
