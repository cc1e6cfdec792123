//go:build ignore

/* The agent's only programs at the ends of calls on sockets, from Linux 6.3 on: see ../followed.h. */
#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "../followed.h"

char LICENSE[] SEC("license") = "GPL";

SEC("tp_btf/sock_recv_length")
int BPF_PROG(received)
{
	u32 rank = arrive(ctx, &socket_groups, GROUP_RECEIVED);

	pass_on(ctx, &received_by, rank, 0);
	return leave(&socket_groups, GROUP_RECEIVED, rank);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(sent)
{
	u32 rank = arrive(ctx, &socket_groups, GROUP_SENT);

	pass_on(ctx, &sent_by, rank, 0);
	return leave(&socket_groups, GROUP_SENT, rank);
}
