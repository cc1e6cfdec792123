/* Feeds the tracker from the calls on sockets (see hooks.h), with the buffer taken
 * from the saved registers of the system call under way. So no system call is traced, which
 * would put every process of the node on the slow path, and reads and writes of files cost
 * nothing. For programs that read(2), write(2), recvfrom(2) or sendto(2) on the wire, as
 * Go's do; bytes moved by any other call put the stream out of step, which is counted.
 */
#ifndef __PLUMBLINE_SOCKETS_H__
#define __PLUMBLINE_SOCKETS_H__

#include "../arch.h"
#include "track.h"

/* The socket behind a file descriptor of the current task, 0 if it is none. */
static __always_inline struct sock *sock_of_fd(u32 fd)
{
	/* The call has found a socket there: fd is within the table. */
	struct file *file = (void *)read_pointer(bpf_get_current_task_btf()->files->fdt->fd + fd);
	struct inode *inode = read_field(file, f_inode);

	if ((read_field(inode, i_mode) & S_IFMT) != S_IFSOCK)
		return 0;
	struct socket *socket = read_field(file, private_data);
	return read_field(socket, sk);
}

/* The buffer of the current task's call; 0 if it is none of these. */
static __always_inline u64 receive_buffer(struct pt_regs *regs)
{
	int nr = SYSCALL_NR(regs);

	return IS_CALL(nr, read) || IS_CALL(nr, recvfrom) ? ARG2(regs) : 0;
}

static __always_inline u64 send_buffer(struct pt_regs *regs)
{
	int nr = SYSCALL_NR(regs);

	return IS_CALL(nr, write) || IS_CALL(nr, sendto) ? ARG2(regs) : 0;
}

/* Does a whole request begin at this address? */
static __always_inline bool request_at(u64 address, u64 length)
{
	u8 header[WIRE_HEADER_CAPACITY] = {};
	struct wire_message m = {};

	if (length > WIRE_HEADER_MAX)
		length = WIRE_HEADER_MAX;
	if (length < 2)
		return false;
	length &= WIRE_HEADER_CAPACITY / 2 - 1;
	if (bpf_probe_read_user(header, length, (void *)address))
		return false;
	return wire_begins(header, 2) && wire_need(header, 2) <= length &&
	       !wire_parse(header, &m) && m.kind == WIRE_REQUEST;
}

/* May a message begin at this address? */
static __always_inline bool message_at(u64 address, u64 length)
{
	u8 header[2] = {};

	if (length >= 2) {
		if (bpf_probe_read_user(header, 2, (void *)address))
			return false;
		return wire_begins(header, 2);
	}
	if (bpf_probe_read_user(header, 1, (void *)address))
		return false;
	return wire_begins(header, 1);
}

/* The connection of an engine's call that sends a request, opened by this call. */
static __noinline struct connection *open_by_request(struct process *p, struct sock *sk, u64 inode, struct pt_regs *regs, u32 scratch_slot)
{
	u64 buffer = send_buffer(regs);

	if (!buffer || !request_at(buffer, ARG3(regs)))
		return 0;
	return connection_open(inode, sk, p->slot, VIEW_REQUEST, scratch_slot);
}

/* The current task is about to send on this socket, or has just sent. Notes the requests in the buffer, once per
 * call: with the answer back before the call returns, as can be on one machine, there would be none to go with it.
 * The stream itself moves on only when the kernel has reported how much it took. */
static __always_inline void note_requests(struct process *p, struct sock *sk, u64 inode, struct pt_regs *regs, u32 scratch_slot)
{
	u64 buffer = send_buffer(regs);
	u64 length = ARG3(regs);

	if (!buffer)
		return;
	struct connection *c = bpf_map_lookup_elem(&connections, &inode);
	if (!c)
		c = open_by_request(p, sk, inode, regs, scratch_slot);
	if (!c || c->view != VIEW_REQUEST || c->sending)
		return;
	c->sending = 1;
	struct cursor u = {
		.connection = c,
		.stream = &c->tx,
		.process = p,
		.position = buffer,
		.left = length,
		.now = bpf_ktime_get_ns(),
		.request = 1,
	};
	stream_preview(&u, scratch_slot);
}

static __always_inline struct process *engine_now(void)
{
	struct process *p = process_now();

	return p && p->role == ROLE_ENGINE ? p : 0;
}

/* The earliest sight of a send. Linux 6.16. */
SEC("tp_btf/tcp_sendmsg_locked")
int BPF_PROG(replica_sending, struct sock *sk)
{
	u32 rank = program_enter(ctx, &program_groups, GROUP_SENDING);
	struct process *p = engine_now();

	if (p)
		note_requests(p, sk, inode_by_btf(sk), (void *)bpf_task_pt_regs(bpf_get_current_task_btf()),
			scratch_slot_of(SCRATCH_SENDING, rank));
	return program_exit(&program_groups, GROUP_SENDING, rank);
}

/* In its place before: a packet goes to a device. It need not be the current task's, because an interrupt sends
 * packets, too; nor need the call still be under way, whose registers stay until the task is back in its program.
 * The socket's lock shows both: a task holds it while it sends, and without it no interrupt sends for this socket. */
SEC("tp_btf/net_dev_queue")
int BPF_PROG(replica_sending_packet, struct sk_buff *packet)
{
	struct process *p = engine_now();

	if (!p)
		return 0;
	struct sock *sk = packet->sk;
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	if (sk && sk->sk_lock.owned && send_buffer(regs) && sk == sock_of_fd(ARG1(regs)))
		note_requests(p, sk, inode_by_btf(sk), regs, SCRATCH_SENDING_PACKET);
	return 0;
}

/* On a unix socket, where data reaches the receiver without a packet: just before it is
 * woken. Attached only if an engine talks to its replica like this. */
static __always_inline int sending_local(u32 rank, struct process *p)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	struct sock *sk = send_buffer(regs) ? sock_of_fd(ARG1(regs)) : 0;
	if (sk)
		note_requests(p, sk, inode_at(sk), regs, scratch_slot_of(SCRATCH_SENDING_LOCAL, rank));
	return 0;
}

/* The current task's call on this socket has sent bytes, or failed. */
static __always_inline int sent(u32 rank, struct process *p, struct sock *sk, u64 inode, u32 family, int result, u32 scratch_slot)
{
	if (family != AF_INET && family != AF_INET6 && family != AF_UNIX)
		return 0;
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	struct connection *c = bpf_map_lookup_elem(&connections, &inode);
	if (c && already_handled(&c->tx.handled_by, rank))
		return 0;
	bool requests = p->role == ROLE_ENGINE && result > 0;
	if (c) {
		if (requests)
			note_requests(p, sk, inode, regs, scratch_slot_of(scratch_slot, rank));
	} else {
		/* The answers may have been read already, while nobody knew the connection: the
		 * requests of this call are not noted. */
		c = requests ? open_by_request(p, sk, inode, regs, scratch_slot_of(scratch_slot, rank)) : 0;
		if (!c)
			return 0;
		already_handled(&c->tx.handled_by, rank);
	}
	c->sending = 0;
	early_responses_forget(c);
	if (is_broken(result))
		c->ended = 1;
	if (result <= 0)
		return 0;
	struct cursor u = {
		.connection = c,
		.stream = &c->tx,
		.process = p,
		.position = send_buffer(regs),
		.left = result,
		.now = bpf_ktime_get_ns(),
		.request = c->view == VIEW_REQUEST,
	};
	if (u.position) {
		stream_feed(&u);
	} else {
		c->tx.moved += result;
		stream_lose_sync(&u);
	}
	return 0;
}

/* The current task's call on this socket has received bytes, or failed. */
static __always_inline int received(u32 rank, struct process *p, struct sock *sk, u64 inode, u32 family, int result, u32 scratch_slot)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(bpf_get_current_task_btf());
	u64 buffer = receive_buffer(regs);
	struct connection *c = bpf_map_lookup_elem(&connections, &inode);
	if (result <= 0) {
		/* A program may keep the socket of a dead peer for long. At the stream's end a
		 * server may still have answers to send; a client has none to wait for. */
		if (c && (is_broken(result) || (!result && c->view == VIEW_REQUEST)))
			c->ended = 1;
		return 0;
	}
	if (c && already_handled(&c->rx.handled_by, rank))
		return 0;
	if (!c) {
		/* An engine's frontend is the one unix socket it serves; a replica serves its
		 * data port, or with data locality strict-local a unix socket. */
		if (p->role == ROLE_ENGINE || !p->data_port) {
			if (family != AF_UNIX)
				return 0;
		} else if ((family != AF_INET && family != AF_INET6) || read_field(sk, __sk_common.skc_num) != p->data_port) {
			return 0;
		}
		if (!buffer || !message_at(buffer, result)) {
			if (!rank)
				count(EVENT_UNRECOGNISED);
			return 0;
		}
		c = connection_open(inode, sk, p->slot, p->role == ROLE_ENGINE ? VIEW_FRONTEND : VIEW_SERVICE, scratch_slot_of(scratch_slot, rank));
		if (!c)
			return 0;
		already_handled(&c->rx.handled_by, rank);
	}
	struct cursor u = {
		.connection = c,
		.stream = &c->rx,
		.process = p,
		.position = buffer,
		.left = result,
		.now = bpf_ktime_get_ns(),
		.request = c->view != VIEW_REQUEST,
	};
	if (buffer) {
		stream_feed(&u);
	} else {
		c->rx.moved += result;
		stream_lose_sync(&u);
	}
	return 0;
}

#include "hooks.h"

#endif
