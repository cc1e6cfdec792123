/* How a program comes to run in the task that has called on a socket (see ../query/hooks.h), for targets in user
 * space; and what reports which of their sockets are open.
 */
#ifndef __PLUMBLINE_USER_TARGET_PROGRAMS_H__
#define __PLUMBLINE_USER_TARGET_PROGRAMS_H__

#include "user_target.h"

SEC("tp_btf/sock_recv_length")
int BPF_PROG(user_target_received, struct sock *sk, int result, int flags)
{
	u32 rank = rank_of(ctx);

	if (is_user_target() && !(flags & MSG_PEEK))
		received(rank, sk, inode_by_btf(sk), family_of(sk), result, SCRATCH_RECEIVED);
	pass_on(ctx, &received_by, rank, OWN_FOLLOWER + 1);
	return program_exit(&socket_groups, GROUP_RECEIVED, rank);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(user_target_sent, struct sock *sk, int result)
{
	u32 rank = rank_of(ctx);

	if (is_user_target())
		sent(rank, inode_by_btf(sk), result, SCRATCH_SENT);
	pass_on(ctx, &sent_by, rank, OWN_FOLLOWER + 1);
	return program_exit(&socket_groups, GROUP_SENT, rank);
}

/* Before Linux 6.3. */
SEC("fexit/inet_recvmsg")
int BPF_PROG(user_target_inet_received, struct socket *s, void *msg, u64 size, int flags, int result)
{
	return !is_user_target() || flags & MSG_PEEK ? 0 : received(0, s->sk, inode_behind(s), family_of(s->sk), result, SCRATCH_RECEIVED);
}

SEC("fexit/inet6_recvmsg")
int BPF_PROG(user_target_inet6_received, struct socket *s, void *msg, u64 size, int flags, int result)
{
	return !is_user_target() || flags & MSG_PEEK ? 0 : received(0, s->sk, inode_behind(s), family_of(s->sk), result, SCRATCH_RECEIVED_INET6);
}

SEC("fexit/inet_sendmsg")
int BPF_PROG(user_target_inet_sent, struct socket *s, void *msg, u64 size, int result)
{
	return is_user_target() ? sent(0, inode_behind(s), result, SCRATCH_SENT) : 0;
}

SEC("fexit/inet6_sendmsg")
int BPF_PROG(user_target_inet6_sent, struct socket *s, void *msg, u64 size, int result)
{
	return is_user_target() ? sent(0, inode_behind(s), result, SCRATCH_SENT_INET6) : 0;
}

/* A socket that a target has open. */
struct user_target_socket {
	u64 inode;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

#pragma clang attribute pop

/* Reports to user space which sockets of targets are open. */
SEC("iter/task_file")
int user_target_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;

	if (!task || !file)
		return 0;
	if (!is_user_target_task(task))
		return 0;
	if ((file->f_inode->i_mode & S_IFMT) != S_IFSOCK)
		return 0;
	struct user_target_socket s = {.inode = file->f_inode->i_ino};
	bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
	return 0;
}

/* Gives the parser to user space: for tests, which compare it with Go's. */
struct parsed {
	u8 header[HEADER_CAPACITY];
	u32 to_target;
	int result;
	struct message message;
};

SEC("syscall")
int user_target_parse(struct parsed *p)
{
	u8 header[WIRE_HEADER_MAX];

	__builtin_memcpy(header, p->header, sizeof(header));
	struct message m = {};
	p->result = wire_parse(header, &m, p->to_target);
	p->message = m;
	return 0;
}

/* Puts these types into the object's type information. Go's types are generated from it. */
const struct session *unused_session __attribute__((unused));
const struct parsed *unused_parsed __attribute__((unused));
const enum user_target_event *unused_user_target_event __attribute__((unused));

#endif
