/* Where a connection's state is kept: where each connection has a process, in that one's own state; else on its socket,
 * so that it does not matter which thread serves it, and the kernel frees it with the socket. Probes on a TLS library
 * cannot come by sockets, so that the state of an encrypted connection hangs on the task, and begins anew when the task
 * turns to another one. */
#ifndef __QUERY_CONNECTION_H__
#define __QUERY_CONNECTION_H__

#include "clock.h"
#include "protocol.h"

struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} connections SEC(".maps");

/* The encrypted connection that a task is at. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct connection);
} encrypted_connections SEC(".maps");

/* Whether a socket was accepted on one of the server's ports, or bound to a path, as the
 * accepted end of a local connection is: then it is a client's. Outgoing ones are not. */
static __noinline bool from_client(struct followed_task *followed, u64 sk)
{
	if (!followed || !sk)
		return false;
	u16 family = read_as(struct sock, sk, __sk_common.skc_family);
	if (family == AF_UNIX)
		return read_as(struct unix_sock, sk, addr) != NULL;
	if (family != AF_INET && family != AF_INET6)
		return false;
	u32 id = followed->server;
	struct server *s = bpf_map_lookup_elem(&servers, &id);
	if (!s || !s->ports[0])
		return true;
	u16 port = read_as(struct sock, sk, __sk_common.skc_num);
	return port == s->ports[0] || port == s->ports[1] || port == s->ports[2] || port == s->ports[3];
}

/* The state of the encrypted connection that a task is at, made or begun anew if it was at another one. Where
 * it serves many at once it is not read, and what is known of it stays on the socket. */
static __always_inline struct connection *encrypted_at(struct followed_task *followed, struct connection *c, struct task_struct *task, u64 sk)
{
	if (traits_of(followed->engine) & TRAIT_SERVES_MANY)
		return c;
	struct connection *e = bpf_task_storage_get(&encrypted_connections, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u64 inode = socket_inode_of(sk);
	if (!e) {
		count_loss(followed->server, LOST_CONNECTION);
		return NULL;
	}
	if (e->socket == sk && e->inode == inode)
		return e;
	__builtin_memset(e->own, 0, sizeof(e->own));
	e->socket = sk;
	e->inode = inode;
	e->server = followed->server;
	e->conn = c->conn;
	e->tls = 1;
	e->understood = 0;
	e->unread = 0;
	e->tls_answered = 0;
	e->begun = 0;
	e->request = 0;
	e->answered = 0;
	e->bound = 0;
	e->head_len = 0;
	e->skip = 0;
	return e;
}

/* The task turns to another connection. */
static __always_inline void turn_to(struct followed_task *followed, struct sock *sk, u64 inode)
{
	followed->socket = (u64)sk;
	followed->socket_inode = inode;
	followed->tls_session = 0;
	followed->in_transaction = 0;
	followed->blocked_client = 0;
}

/* A connection is seen. */
static __always_inline struct connection *seen(struct followed_task *followed, struct connection *c)
{
	if (!c->known) {
		proto_opened(followed, c);
		c->known = 1;
	}
	c->server = followed->server;
	followed->tls = c->tls;
	return c;
}

/* The state of a client's connection that the current task receives from or sends to; NULL if the socket is
 * no client's. */
static __always_inline struct connection *connection_at(struct followed_task *followed, struct task_struct *task, struct sock *sk, bool sends)
{
	bool same = followed->socket == (u64)sk;
	if (traits_of(followed->engine) & TRAIT_PROCESS_PER_CONNECTION) {
		if (!same) {
			/* The only client of a process stays the same. */
			if (followed->socket || followed->leader || sends || !from_client(followed, (u64)sk))
				return NULL;
			turn_to(followed, sk, 0);
		}
		return seen(followed, &followed->client);
	}
	struct connection *c = bpf_sk_storage_get(&connections, sk, NULL, 0);
	if (!c) {
		if (sends || !from_client(followed, (u64)sk))
			return NULL;
		c = bpf_sk_storage_get(&connections, sk, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
		if (!c) {
			count_loss(followed->server, LOST_CONNECTION);
			return NULL;
		}
	}
	/* Two threads at one socket at once: what the second one does is not understood. */
	if (__sync_lock_test_and_set(&c->working, 1)) {
		count_loss(followed->server, LOST_CONNECTION);
		return NULL;
	}
	/* What it sends may be the answer to what another thread has received. */
	if (!same || !c->known || (sends && !c->tls && c->pid && c->pid != task->pid)) {
		proto_turns(followed, c, task, sends);
		turn_to(followed, sk, traits_of(followed->engine) & TRAIT_SERVES_MANY ? 0 : socket_inode_of((u64)sk));
	}
	return seen(followed, c);
}

/* The current task is done with what connection_at() gave it. */
static __always_inline void leave_connection(struct connection *c)
{
	barrier();
	c->working = 0;
}

#endif
