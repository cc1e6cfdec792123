/* The interface between the kernel and received_locked(), sent_locked(): how a program comes to run in the
 * task that has called on a socket. The agent loads one of two kinds, by what the kernel has
 * (exporters/agent/platform); the body is the same.
 *
 * - Tracepoints, by BTF: the cheapest. Since Linux 7.0 a task may be preempted within such a
 *   program: there it has backup programs.
 * - Behind the socket families' own functions, before Linux 6.3, which has not the tracepoints.
 */
#ifndef __QUERY_HOOKS_H__
#define __QUERY_HOOKS_H__

#include "../backups.h"

static __always_inline int received(u32 rank, struct sock *sk, int ret, int flags)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct followed_task *followed = followed_task_of(task);
	if (!followed || !sk || flags & MSG_PEEK || already_handled(&followed->handled_by, rank))
		return 0;
	clock_lock(followed);
	struct timing t = timed(followed, task);
	followed->socket_runs++;
	struct connection *c = connection_at(followed, task, sk, false);
	if (c) {
		received_locked(followed, c, task, sk, ret);
		leave_connection(c);
	}
	timed_until_now(followed, &t);
	return clock_unlock(followed, task);
}

static __always_inline int sent(u32 rank, struct sock *sk, int ret)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct followed_task *followed = followed_task_of(task);
	if (!followed || !sk || already_handled(&followed->handled_by, rank))
		return 0;
	clock_lock(followed);
	struct timing t = timed(followed, task);
	struct connection *c = connection_at(followed, task, sk, true);
	if (c) {
		followed->socket_runs++;
		sent_locked(followed, c, task, sk, ret);
		leave_connection(c);
	}
	timed_until_now(followed, &t);
	return clock_unlock(followed, task);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(socket_received, struct sock *sk, int ret, int flags)
{
	u32 rank = rank_of(ctx);
	received(rank, sk, ret, flags);
	return program_exit(&socket_groups, GROUP_RECEIVED, rank);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(socket_sent, struct sock *sk, int ret)
{
	u32 rank = rank_of(ctx);
	sent(rank, sk, ret);
	return program_exit(&socket_groups, GROUP_SENT, rank);
}

SEC("fexit/unix_stream_recvmsg")
int BPF_PROG(unix_received, struct socket *s, void *msg, u64 size, int flags, int ret)
{
	return received(0, s->sk, ret, flags);
}

SEC("fexit/inet_recvmsg")
int BPF_PROG(inet_received, struct socket *s, void *msg, u64 size, int flags, int ret)
{
	return received(0, s->sk, ret, flags);
}

SEC("fexit/inet6_recvmsg")
int BPF_PROG(inet6_received, struct socket *s, void *msg, u64 size, int flags, int ret)
{
	return received(0, s->sk, ret, flags);
}

SEC("fexit/unix_stream_sendmsg")
int BPF_PROG(unix_sent, struct socket *s, void *msg, u64 size, int ret)
{
	return sent(0, s->sk, ret);
}

SEC("fexit/inet_sendmsg")
int BPF_PROG(inet_sent, struct socket *s, void *msg, u64 size, int ret)
{
	return sent(0, s->sk, ret);
}

SEC("fexit/inet6_sendmsg")
int BPF_PROG(inet6_sent, struct socket *s, void *msg, u64 size, int ret)
{
	return sent(0, s->sk, ret);
}

#endif
