//go:build ignore

/* The agent's only programs at the ends of calls on sockets, from Linux 6.3 on: see ../followed.h. */
#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "../followed.h"

char LICENSE[] SEC("license") = "GPL";

/* How many bits of the map followed are set, as user space counts them: while there is none nothing reads the map. */
u32 followed_bits;

/* Passes a call on to the first collector that follows the task. */
static __always_inline void dispatch(void *ctx, void *programs, u32 rank)
{
	struct task_struct *task = bpf_get_current_task_btf();

	pass_on_to(followed_bits ? followers_of(tgid_of(task)) : 0, task, ctx, programs, rank, 0);
}

SEC("tp_btf/sock_recv_length")
int BPF_PROG(received)
{
	u32 rank = program_enter(ctx, &socket_groups, GROUP_RECEIVED);

	dispatch(ctx, &received_by, rank);
	return program_exit(&socket_groups, GROUP_RECEIVED, rank);
}

SEC("tp_btf/sock_send_length")
int BPF_PROG(sent)
{
	u32 rank = program_enter(ctx, &socket_groups, GROUP_SENT);

	dispatch(ctx, &sent_by, rank);
	return program_exit(&socket_groups, GROUP_SENT, rank);
}
