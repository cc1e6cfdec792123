/* How a program comes to run in the task that has called on a socket: by one of two kinds of programs with one
 * body; the agent loads those that fit the kernel. See ../query/hooks.h. */
#ifndef __PLUMBLINE_HOOKS_H__
#define __PLUMBLINE_HOOKS_H__

SEC("tp_btf/sock_recv_length")
int BPF_PROG(replica_received, struct sock *sk, int result, int flags)
{
	u32 rank = rank_of(ctx);
	struct process *p = process_now();

	if (p && !(flags & MSG_PEEK))
		received(rank, p, sk, inode_by_btf(sk), family_of(sk), result, SCRATCH_RECEIVED);
	pass_on(ctx, &received_by, rank, FOLLOWS_REPLICAS + 1);
	return program_exit(&socket_groups, GROUP_RECEIVED, rank);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(replica_sent, struct sock *sk, int result)
{
	u32 rank = rank_of(ctx);
	struct process *p = process_now();

	if (p)
		sent(rank, p, sk, inode_by_btf(sk), family_of(sk), result, SCRATCH_SENT);
	pass_on(ctx, &sent_by, rank, FOLLOWS_REPLICAS + 1);
	return program_exit(&socket_groups, GROUP_SENT, rank);
}

SEC("tp_btf/sk_data_ready")
int BPF_PROG(replica_sending_local, struct sock *receiver)
{
	u32 rank = program_enter(ctx, &program_groups, GROUP_SENDING_LOCAL);
	struct process *p = engine_now();

	if (p && family_of(receiver) == AF_UNIX)
		sending_local(rank, p);
	return program_exit(&program_groups, GROUP_SENDING_LOCAL, rank);
}

/* Before Linux 6.3. */
static __always_inline int function_received(struct socket *s, int result, int flags, u32 scratch_slot)
{
	struct process *p = process_now();

	return !p || flags & MSG_PEEK ? 0 : received(0, p, s->sk, inode_behind(s), family_of(s->sk), result, scratch_slot);
}

static __always_inline int function_sent(struct socket *s, int result, u32 scratch_slot)
{
	struct process *p = process_now();

	return p ? sent(0, p, s->sk, inode_behind(s), family_of(s->sk), result, scratch_slot) : 0;
}

SEC("fexit/inet_recvmsg")
int BPF_PROG(replica_inet_received, struct socket *s, void *msg, u64 size, int flags, int result)
{
	return function_received(s, result, flags, SCRATCH_RECEIVED);
}

SEC("fexit/inet6_recvmsg")
int BPF_PROG(replica_inet6_received, struct socket *s, void *msg, u64 size, int flags, int result)
{
	return function_received(s, result, flags, SCRATCH_RECEIVED_INET6);
}

SEC("fexit/unix_stream_recvmsg")
int BPF_PROG(replica_unix_received, struct socket *s, void *msg, u64 size, int flags, int result)
{
	return function_received(s, result, flags, SCRATCH_RECEIVED_UNIX);
}

SEC("fexit/inet_sendmsg")
int BPF_PROG(replica_inet_sent, struct socket *s, void *msg, u64 size, int result)
{
	return function_sent(s, result, SCRATCH_SENT);
}

SEC("fexit/inet6_sendmsg")
int BPF_PROG(replica_inet6_sent, struct socket *s, void *msg, u64 size, int result)
{
	return function_sent(s, result, SCRATCH_SENT_INET6);
}

SEC("fexit/unix_stream_sendmsg")
int BPF_PROG(replica_unix_sent, struct socket *s, void *msg, u64 size, int result)
{
	return function_sent(s, result, SCRATCH_SENT_UNIX);
}

SEC("fentry/unix_stream_sendmsg")
int BPF_PROG(replica_unix_sending, struct socket *s)
{
	struct process *p = engine_now();

	return p ? sending_local(0, p) : 0;
}

#endif
