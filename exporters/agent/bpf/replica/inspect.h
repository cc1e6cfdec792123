/* What the sockets of followed processes hold at this moment, and whether the processes are stalled: an iterator that
 * user space reads in the background. No tracepoint shows what a process does not read, and what it does while it is
 * stopped. It adds nothing to any system call, and works across network and mount namespaces.
 */
#ifndef __PLUMBLINE_INSPECT_H__
#define __PLUMBLINE_INSPECT_H__

#include "track.h"

#define TCP_LISTEN 10
#define IPPROTO_TCP 6
#define RCV_SHUTDOWN 1
#define TASK_STOPPED_OR_TRACED (4 | 8) /* __TASK_STOPPED, __TASK_TRACED of linux/sched.h */
#define TASK_FROZEN 0x8000             /* the freezer of cgroup v1 and of suspend */

/* More packets in a queue than its memory's limit lets in. */
#define INSPECT_PACKETS 512

enum socket_flag {
	SOCKET_TCP = 1,
	SOCKET_UNIX = 2,
	SOCKET_LISTENS = 4,
	SOCKET_SERVED = 8,     /* a unix socket that was accepted: it has its listener's name */
	SOCKET_PEER_GONE = 16, /* nobody waits for an answer any more */
	SOCKET_STOPPED = 32,   /* its process is stopped by a signal or a tracer */
	SOCKET_FROZEN = 64,    /* its process is frozen with its cgroup */
};

/* One stream socket of a followed process. */
struct socket_state {
	u64 inode;
	u64 front;    /* distinguishes the first unread packet of a unix socket from others */
	u64 switches; /* how often the process's first thread was scheduled */
	u32 slot;
	u32 unread;  /* bytes that have arrived and that the process has not read */
	u32 read;    /* TCP: sequence number that the process has read up to */
	u32 written; /* TCP: sequence number that the process has written up to */
	u32 unsent;  /* TCP: bytes written and not acknowledged by the other end */
	u16 port;    /* TCP: the local port */
	u8 flags;    /* enum socket_flag */
	u8 pad[9];
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	u32 fd;
	struct file *file;
};

struct sock_common___inspect {
	short unsigned int skc_family;
	__u16 skc_num;
	volatile unsigned char skc_state;
};

struct sk_buff___inspect {
	struct sk_buff___inspect *next;
	unsigned int len;
	char cb[48];
};

struct sk_buff_head___inspect {
	struct sk_buff___inspect *next;
};

struct sock___inspect {
	struct sock_common___inspect __sk_common;
	struct sk_buff_head___inspect sk_receive_queue;
	__u8 sk_shutdown;
	__u16 sk_type;
	__u16 sk_protocol;
};

struct tcp_sock___inspect {
	u32 rcv_nxt;
	u32 copied_seq;
	u32 write_seq;
	u32 snd_una;
};

struct unix_sock___inspect {
	struct unix_address *addr;
};

struct unix_skb_parms {
	u32 consumed;
};

struct task_struct___inspect {
	unsigned int __state;
	unsigned int frozen : 1;
	unsigned long nvcsw;
	unsigned long nivcsw;
};

#pragma clang attribute pop

/* A walk along the packets that a unix socket has not read. */
struct unread_walk {
	struct sk_buff___inspect *packet;
	struct sk_buff_head___inspect *head;
	u64 front; /* of the first one */
	u64 bytes;
};

static long unread_step(u32 i, struct unread_walk *w)
{
	struct sk_buff___inspect *packet = w->packet;

	if (!packet || (void *)packet == (void *)w->head)
		return 1;
	u32 length = read_field(packet, len);
	struct unix_skb_parms *parms = (void *)packet + bpf_core_field_offset(struct sk_buff___inspect, cb);
	u32 consumed = 0;

	if (bpf_core_field_exists(parms->consumed))
		consumed = read_field(parms, consumed);
	if (!i)
		w->front = (u64)packet + consumed;
	if (consumed < length)
		w->bytes += length - consumed;
	w->packet = read_field(packet, next);
	return 0;
}

/* The unread bytes of a unix socket. Nobody holds the queue still meanwhile: of a process
 * that reads, the sum is of some moment; of one that does not, it is exact. */
static __always_inline void unix_unread(struct sock___inspect *sk, struct socket_state *s)
{
	struct sk_buff_head___inspect *head = (void *)sk + bpf_core_field_offset(struct sock___inspect, sk_receive_queue);
	struct unread_walk w = {.packet = read_field(head, next), .head = head};

	bpf_loop(INSPECT_PACKETS, unread_step, &w, 0);
	s->front = w.front;
	s->unread = w.bytes;
}

SEC("iter/task_file")
int replica_sockets(struct bpf_iter__task_file *ctx)
{
	struct task_struct *task = ctx->task;
	struct file *file = ctx->file;

	if (!task || !file)
		return 0;
	struct process *p = process_of(tgid_of(task));
	if (!p)
		return 0;
	if ((file->f_inode->i_mode & S_IFMT) != S_IFSOCK)
		return 0;
	struct socket *socket = file->private_data;
	struct sock___inspect *sk = (void *)read_field(socket, sk);
	if (!sk || read_field(sk, sk_type) != SOCK_STREAM)
		return 0;
	struct socket_state s = {.inode = file->f_inode->i_ino, .slot = p->slot};
	u32 family = read_field(sk, __sk_common.skc_family);
	if (family == AF_UNIX) {
		struct unix_sock___inspect *u = (void *)sk;

		s.flags |= SOCKET_UNIX;
		if (read_field(u, addr))
			s.flags |= SOCKET_SERVED;
	} else if ((family == AF_INET || family == AF_INET6) && read_field(sk, sk_protocol) == IPPROTO_TCP) {
		s.flags |= SOCKET_TCP;
		s.port = read_field(sk, __sk_common.skc_num);
	} else {
		return 0;
	}
	if (read_field(sk, __sk_common.skc_state) == TCP_LISTEN) {
		s.flags |= SOCKET_LISTENS;
	} else if (s.flags & SOCKET_UNIX) {
		unix_unread(sk, &s);
	} else {
		struct tcp_sock___inspect *t = (void *)sk;

		s.read = read_field(t, copied_seq);
		s.unread = read_field(t, rcv_nxt) - s.read;
		s.written = read_field(t, write_seq);
		s.unsent = s.written - read_field(t, snd_una);
		/* What was read or acknowledged between these two readings. */
		if ((s32)s.unread < 0)
			s.unread = 0;
		if ((s32)s.unsent < 0)
			s.unsent = 0;
	}
	if (read_field(sk, sk_shutdown) & RCV_SHUTDOWN) {
		s.flags |= SOCKET_PEER_GONE;
		/* The stream's end has a sequence number of its own. */
		if (s.flags & SOCKET_TCP && s.unread)
			s.unread--;
	}

	struct task_struct___inspect *leader = (void *)task->group_leader;
	u32 state = read_field(leader, __state);
	if (state & TASK_STOPPED_OR_TRACED)
		s.flags |= SOCKET_STOPPED;
	if (state & TASK_FROZEN)
		s.flags |= SOCKET_FROZEN;
	if (bpf_core_field_exists(leader->frozen) && BPF_CORE_READ_BITFIELD(leader, frozen))
		s.flags |= SOCKET_FROZEN;
	s.switches = read_field(leader, nvcsw) + read_field(leader, nivcsw);
	bpf_seq_write(ctx->meta->seq, &s, sizeof(s));
	return 0;
}

/* For Go's types. */
const struct socket_state *unused_socket_state __attribute__((unused));
const enum socket_flag *unused_socket_flag __attribute__((unused));

#endif
