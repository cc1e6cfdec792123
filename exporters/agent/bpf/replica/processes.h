/* Reports programs that start to user space, and forgets those that end at once, so that a reused process id is
 * never taken for the old process. */
#ifndef __PLUMBLINE_PROCESSES_H__
#define __PLUMBLINE_PROCESSES_H__

#include "track.h"

static __always_inline void report_process(u32 tgid, u32 exited)
{
	struct process_event *n = bpf_ringbuf_reserve(&process_events, sizeof(*n), 0);

	if (!n) {
		count(EVENT_LOST_PROCESS_EVENT);
		return;
	}
	n->tgid = tgid;
	n->exited = exited;
	bpf_ringbuf_submit(n, 0);
}

static __always_inline int executed(struct task_struct *task)
{
	u32 tgid = tgid_of(task);
	char name[16];

	if (!tgid)
		return 0;
	if (process_of(tgid)) {
		/* The same process is another program now. */
		bpf_map_delete_elem(&processes, &tgid);
		report_process(tgid, 1);
	}
	/* By name only, to wake user space for few programs; it decides by the command line. */
	if (bpf_get_current_comm(name, sizeof(name)))
		return 0;
	if (!bpf_strncmp(name, 8, "longhorn") || !bpf_strncmp(name, 4, "jiva"))
		report_process(tgid, 0);
	return 0;
}

static __always_inline int ended(struct task_struct *task)
{
	u32 tgid = tgid_of(task);

	if (!process_of(tgid) || task->signal->live.counter > 0)
		return 0;
	bpf_map_delete_elem(&processes, &tgid);
	report_process(tgid, 1);
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(replica_exec, struct task_struct *task)
{
	u32 rank = program_enter(ctx, &program_groups, GROUP_EXECUTED);

	executed(task);
	return program_exit(&program_groups, GROUP_EXECUTED, rank);
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(replica_exit, struct task_struct *task)
{
	u32 rank = program_enter(ctx, &program_groups, GROUP_ENDED);

	ended(task);
	return program_exit(&program_groups, GROUP_ENDED, rank);
}

#endif
