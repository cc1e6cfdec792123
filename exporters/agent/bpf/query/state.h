/* What the programs keep for each followed task (a process or a thread of a database server): its clock;
 * and for each connection: what its protocol needs. And the maps shared with the agent. */
#ifndef __QUERY_STATE_H__
#define __QUERY_STATE_H__

#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "../../../bpf/native_histogram.h"
#include "../kernel.h"
#include "../trace.h"

#define READ_ONCE(x) (*(volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))

/* A statement's time is the sum of these; see clock.h. */
enum phase {
	PHASE_CPU,
	PHASE_RUNQUEUE,
	PHASE_READ,
	PHASE_WRITE,
	PHASE_SYNC,
	PHASE_CLIENT,
	PHASE_WAIT,
	PHASES,
};

/* A protocol names the commands that it distinguishes, from 1 on. */
enum command {
	OTHER,
	COMMANDS = 9,
};

enum loss {
	LOST_PROTOCOL,       /* bytes that are not the engine's protocol, until the next idle moment */
	LOST_PIPELINE,       /* more requests in flight on one connection than are remembered */
	LOST_ENCRYPTED,      /* answers on a connection whose bytes cannot be read */
	LOST_COMPRESSED,     /* requests on a connection whose bytes are compressed */
	LOST_X_PROTOCOL,     /* requests that came by MySQL's X protocol */
	LOST_SERIES,         /* statements without an entry in the statistics map */
	LOST_TASK,           /* processes or threads that the kernel had no memory for, until the next scan */
	LOST_CONNECTION,     /* calls on connections that the kernel had no memory for, or that two threads made at once */
	LOST_PROCESS_EVENTS, /* servers that began or ended, which could not be reported at once */
	NO_ID,               /* statements to which the server gave no query identifier */
	NO_ID_READ,          /* and those whose identifier could not be read */
	NO_ID_ENTRY_NS,      /* time of those for whose query there was no entry, ns */
	LOSSES,
};

/* How far the protocol on a connection is understood. */
enum conn {
	CONN_LOGIN, /* before the first ready-for-query */
	CONN_READY, /* message boundaries are known */
	CONN_LOST,  /* boundaries are unknown until the server has read everything */
};

#define MAX_BODY 120             /* bytes of a message body that are parsed */
#define MAX_HEADER 7             /* bytes of a header before it, at the most */
#define HEAD_OFFSET 0            /* in bytes[]: of a message that comes in parts */
#define STAGE_OFFSET 256         /* in bytes[]: of the bytes at hand; a power of two, above twice STAGE_BYTES */
#define STAGE_BYTES 128          /* bytes that are copied at once */
#define PROTOCOL_STATE_BYTES 600 /* bytes of a connection for its protocol alone */

/* What a request is kept as: its command and these. */
#define REQUEST_HAS_STATEMENT 0x80
#define REQUEST_MARKED 0x40  /* something that only its protocol knows */
#define REQUEST_UNKNOWN 0x20 /* its command is not known, see prepared.h and sql.h */
#define REQUEST_SEVERAL 0x10 /* it has several statements */
#define REQUEST_COMMAND_BITS 0x0f

_Static_assert(COMMANDS <= REQUEST_COMMAND_BITS + 1, "a request has space for fewer commands");

/* Who woke a task last, and when; see ../trace.h and wakes.h. */
struct wake {
	u64 at;
	u64 request;
	u64 request_end;
	u32 pid;
	u8 reason; /* enum wake_reason */
	u8 flags;  /* enum trace_flag */
};

#define SYNCS 8 /* a power of two */

/* The last times when a thread was in a sync, or waited for another one's; see syncs.h. */
struct syncs {
	u32 n; /* the last one's place */
	struct sync {
		u64 start;
		u64 end;
		u64 ns; /* of that time */
	} last[SYNCS];
};

/* One per connection of a client: what its protocol needs. See connection.h for where it is kept. */
struct connection {
	u32 server;      /* whose client it is */
	u32 working;     /* a program works on it */
	u32 pid;         /* the task that has begun on what is under way */
	u8 known;        /* its protocol has seen it */
	u8 conn;         /* enum conn */
	u8 understood;   /* a message was read already */
	u8 tls;          /* the socket's bytes are encrypted */
	u8 unread;       /* TLS: encrypted data came and has not been answered */
	u8 tls_answered; /* TLS: the handshake is over */
	u8 begun;        /* TLS: encrypted data has begun what is under way, whose plain bytes have not come yet */
	u8 named;        /* it has prepared statements */
	u8 request;      /* request under assembly, or under way: command | REQUEST_HAS_STATEMENT */
	u8 answered;     /* an answer to it was sent, in part at least */
	u8 bound;        /* command of the statement bound, or prepared, last */
	u64 socket;      /* TLS: the struct sock, and its inode's number, that this is the state of */
	u64 inode;
	u64 start; /* when what is under way began */
	u32 skip;  /* bytes of the message at hand that are not parsed */
	u32 head_len;
	u32 head_want;
	u32 body;      /* body length of the message at hand */
	u64 scan_word; /* of the text being classified; see sql.h */
	u8 scan_state, scan_letters, scan_depth;
	u64 in_buf; /* user address of the received bytes not yet parsed */
	u32 in_left;
	u32 staged; /* bytes in bytes[STAGE_OFFSET], stage_at of them parsed */
	u32 stage_at;
	u64 own[PROTOCOL_STATE_BYTES / 8]; /* what its protocol alone needs, see there; zero at the beginning */
	u8 bytes[2 * STAGE_OFFSET + 8];    /* from HEAD_OFFSET: header and first bytes of a message that comes in parts;
	                            * from STAGE_OFFSET: the bytes at hand, copied at once */
};

/* One per process or thread of a database server; freed by the kernel when it ends. */
struct followed_task {
	u32 server;
	u8 engine;
	u8 leader;           /* the server's main process, whose children or threads are followed */
	u8 adopted;          /* it was there before the agent: its connection is past its login, most likely */
	u8 busy;             /* a request is being worked on */
	u8 current;          /* this one, or what of it has come: command | REQUEST_HAS_STATEMENT */
	u8 is_off;           /* not on a CPU since mark */
	u8 slept;            /* idle and has slept since it last read from the client */
	u8 blocked_client;   /* the client's socket had nothing to read or no room */
	u8 sent;             /* answered something since the request began, at sent_at */
	u8 complete;         /* and that is a whole answer, as far as its end shows */
	u8 tls;              /* the client's bytes are encrypted */
	u8 in_transaction;   /* as the server's last answer reports */
	u32 waiting;         /* connections that have something under way, where one thread serves many at once */
	u8 shared;           /* and the clock is not the current one's alone: the end shows which command gets what */
	u8 lock_wait;        /* asleep until another session gives up a lock */
	u8 locked;           /* a program works on the clock; see clock_lock() */
	u8 program_off_cpu;  /* locked: the program has no CPU */
	u8 handled_by;       /* who has seen the event at the client's socket; see ../backups.h */
	enum phase off_kind; /* phase of the last time off the CPU, unless it was in the run queue */
	u8 read_call;        /* the last time asleep was in a read call */
	u8 unread_wakeup;    /* the next statement may have to read a wake-up from before it */
	u64 socket;          /* the client's struct sock */
	u64 socket_inode;    /* where sockets change: its inode's number, which is not used again as the address is */
	u64 tls_session;     /* the client's SSL object; 0 if the library is not probed */
	u64 tls_reader;      /* SSL object of the read under way */
	u64 tls_buffer;      /* where the read under way will put plain text */
	u64 mark;            /* every nanosecond before it is in phase[] */
	u64 start;
	u64 off_ns;              /* last time off the CPU, not yet in phase[] */
	u64 off_sync;            /* how much of it was a wait for another thread's sync */
	u64 queued;              /* the task's run_delay when it left the CPU */
	u64 wait_start;          /* when the wait that goes on since then began; see switch_out() */
	u32 socket_runs;         /* runs of programs for the client's socket */
	u32 sampled_socket_runs; /* that and the CPU time at the latest snapshot; see count_uncounted() */
	u64 sampled_cpu;
	u64 preempted_at;   /* locked: when the program last lost the CPU */
	u64 preempted_last; /* and for how long */
	u64 preempted;      /* for how long programs had no CPU, not yet in phase[] */
	u64 left;           /* the scheduler's last_arrival when the task last left the CPU */
	u64 clock_offset;   /* from the scheduler's clock to ours, as it was at arrival; 0: not known */
	u64 arrival;        /* by the scheduler's clock */
	u64 unseen;         /* last_arrival of an arrival that was not seen, where another has come since; else 0 */
	u64 phase[PHASES];
	u64 sent_at;            /* the last send, where that ends a statement */
	u64 sent_phase[PHASES]; /* and phase[] then */
	u64 reads;              /* the task's count of read calls at the start */
	u64 missed_at;          /* count of read calls when the last one was found waiting */
	u32 misses;
	u32 socket_reads; /* read calls that were on sockets */
	u32 wakeups;      /* signals that are taken with a read call each */
	u64 behind;       /* how long the statement under way had waited for others when it began */
	u32 until_timed;  /* runs of programs for this task until one is timed; 0: not decided */
	u64 awake_since;  /* tracing: when the task last came to a CPU */
	u64 idle_since;   /* tracing: when it last fell asleep without a request under way */
	u64 wakeup;       /* tracing: how long before start it was woken for the request; 0 if that is not known */
	u64 first_queued; /* tracing: how long the statement waited for a CPU when it began */
	u8 taken_over;    /* tracing: another task began the statement */
	struct wake wake; /* tracing */
	u8 flusher;       /* its place among the server's flushers + 1; see syncs.h */
	u32 flushed_by;   /* the number of the last flusher that has woken it: it may wake others in turn */
	u64 woken_at;     /* when it was woken last */
	u64 woken_sync;   /* how long the thread that did so had synced meanwhile */
	struct syncs syncs;
	struct connection client; /* of a process that serves one */
	u64 status;               /* address of its status in the server's shared memory, if believed; see query_id.h */
	u8 status_tries;          /* how often a process tried to find it */
	u64 query_id;             /* of the statement that ends; 0 if that is not known */
};

/* What is counted of the statements of a command, and of those of a query. */
struct amounts {
	u64 count;
	u64 sum_ns;
	u64 phase_ns[PHASES];
	u64 read_hits;   /* read calls on files that did not wait for a device */
	u64 read_misses; /* and those that did */
};

struct stats {
	struct amounts all;
	u64 unknown;      /* statements whose command is not known: OTHER */
	u64 pipelined;    /* statements that were read together with earlier ones of their connection */
	u64 pipelined_ns; /* and how long they waited for those, which is not in their duration */
	u64 wakeup_ns;    /* tracing: from wake-ups for statements to their starts */
	u64 slots[NATIVE_SLOTS];
};

/* Task-local: dies with its task, so that a reused PID starts afresh. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct followed_task);
} followed_tasks SEC(".maps");

/* Statistics: entry server * COMMANDS + command. An array, because a hash map costs a tenth of
 * all that is done for a short statement; the agent sets its size for the number of servers. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64 * COMMANDS);
	__type(key, u32);
	__type(value, struct stats);
} statements SEC(".maps");

#define MAX_SERVERS 256 /* with number 0 for the rest */

/* What the agent knows of a server. */
struct server {
	u16 ports[4];   /* TCP ports it listens on; none means any port */
	u64 wait_event; /* address of the variable with what its processes wait for, or 0 */
	u64 status;     /* address of the variable with where its processes keep their status, or 0 */
	u32 status_size;
	u32 status_known; /* a process has found that statuses are of this size and layout */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, u32);
	__type(value, struct server);
} servers SEC(".maps");

/* Events that did not become statistics: entry server * LOSSES + enum loss. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64 * LOSSES);
	__type(key, u32);
	__type(value, u64);
} lost SEC(".maps");

/* Keep the types in the object file, from where the agent takes the numbers. */
const enum loss *unused_loss __attribute__((unused));
const enum command *unused_command __attribute__((unused));

/* Set by user space before loading: a task may lose the CPU within a program on the client's
 * socket, so that another task's run of a program on this CPU may fall into it. */
const volatile bool preemptible;

/* Adds to what a run on this CPU of another task may be adding to, or one on any CPU if it is shared. */
static __always_inline void add_to(u64 *sum, u64 n, bool shared)
{
	if (shared && !n)
		return;
	if (shared || preemptible)
		__sync_fetch_and_add(sum, n);
	else
		*sum += n;
}

static __always_inline void add(u64 *sum, u64 n)
{
	add_to(sum, n, false);
}

/* Eight bytes of bytes[] at once, at any alignment; the compiler would load them one by one. */
static __always_inline u64 eight_bytes(struct connection *c, u32 pos)
{
	u64 text;
	barrier_var(pos); /* or the compiler drops a mask that the verifier of Linux 6.1 needs */
	pos &= 2 * STAGE_OFFSET - 1;
	asm volatile("%0 = *(u64 *)(%1 + 0)"
		     : "=r"(text)
		     : "r"(&c->bytes[pos]));
	return text;
}

static __always_inline void count_loss_by(u32 server, enum loss reason, u64 amount)
{
	u32 key = server * LOSSES + reason;
	u64 *n = bpf_map_lookup_elem(&lost, &key);
	/* Probes on the TLS library come here, too, and can be preempted everywhere. */
	if (n)
		__sync_fetch_and_add(n, amount);
}

static __always_inline void count_loss(u32 server, enum loss reason)
{
	count_loss_by(server, reason, 1);
}

#endif
