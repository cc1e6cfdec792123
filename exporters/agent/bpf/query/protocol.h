/* The interface between what watches sockets and time, and the protocols: nothing else knows an engine.
 *
 * A protocol is a header with the functions below, by its prefix, and a line in PROTOCOLS. Dispatch is a
 * switch over a small number, so that all is inlined. */
#ifndef __QUERY_PROTOCOL_H__
#define __QUERY_PROTOCOL_H__

#include "state.h"

/* What distinguishes engines beyond their bytes: the traits of a protocol. */
enum trait {
	/* A connection has a process, a child of the server's main one. Else threads serve connections. */
	TRAIT_PROCESS_PER_CONNECTION = 1,
	/* Its processes wake each other by SIGURG, and each takes it by a read call. */
	TRAIT_WAKES_BY_SIGNAL = 2,
	/* A thread serves many connections at once: what one client lacks keeps no other waiting. */
	TRAIT_SERVES_MANY = 4,
	/* Its threads sync for one another, and wait for that on futexes; see syncs.h. */
	TRAIT_SHARES_SYNCS = 8,
};

#include "mysql.h"
#include "postgresql.h"
#include "redis.h"

/* Every protocol: its name in enum engine, and the prefix of what it defines. */
#define PROTOCOLS(DO, what) \
	DO(POSTGRESQL, pg, what) \
	DO(MYSQL, mysql, what) \
	DO(REDIS, redis, what)

#define ENGINE(name, prefix, what) name,
enum engine {
	UNKNOWN_ENGINE,
	PROTOCOLS(ENGINE, 0)
};

#define CALL(name, prefix, what) \
	case name: \
		return prefix##_##what;
#define DISPATCH(what) \
	switch (followed->engine) { \
		PROTOCOLS(CALL, what) \
	} \
	return 0

static __always_inline u32 traits_of(u32 engine)
{
	switch (engine) {
		PROTOCOLS(CALL, traits)
	}
	return 0;
}

/* A connection is seen for the first time. */
static __always_inline int proto_opened(struct followed_task *followed, struct connection *c)
{
	DISPATCH(opened(followed, c));
}

/* The task turns to another connection than the one it was at, to receive or to send. */
static __always_inline int proto_turns(struct followed_task *followed, struct connection *c, struct task_struct *task, bool sends)
{
	DISPATCH(turns(followed, c, task, sends));
}

/* The server has called to read from the client, with whatever success. */
static __always_inline int proto_reads(struct followed_task *followed, struct connection *c, struct task_struct *task)
{
	DISPATCH(reads(followed, c, task));
}

/* There was nothing to read. */
static __always_inline int proto_drained(struct followed_task *followed, struct connection *c)
{
	DISPATCH(drained(followed, c));
}

/* Plain bytes came from the client, in one piece at a user address. names may be NULL. */
static __always_inline int proto_received(struct followed_task *followed, struct connection *c, struct names *names, u64 buf, u32 len)
{
	DISPATCH(received(followed, c, names, buf, len));
}

/* The server gives plain bytes to the socket or, then sk is NULL, to the TLS library. */
static __always_inline int proto_wrote(struct followed_task *followed, struct connection *c, struct sock *sk, u64 buf, u32 len)
{
	DISPATCH(wrote(followed, c, sk, buf, len));
}

/* What it wrote is on its way to the client, as far as the socket took it. */
static __always_inline int proto_sent(struct followed_task *followed, struct connection *c, struct task_struct *task)
{
	DISPATCH(sent(followed, c, task));
}

/* Returns the phase of a task that goes to sleep in a call that does not show it; lock_wait is set. */
static __always_inline u32 proto_waits(struct followed_task *followed, long nr)
{
	DISPATCH(waits(followed, nr));
}

/* The task goes to sleep in the phase wait: true if that ends what was under way. The clock is up to now. */
static __always_inline bool proto_rests(struct followed_task *followed, struct task_struct *task, long nr, u64 now)
{
	DISPATCH(rests(followed, task, nr, now));
}

#endif
