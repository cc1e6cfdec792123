/* The processes whose calls on sockets are looked at, so that everybody else's cost one load. User space writes them,
 * by the process ids that it knows.
 */
#ifndef __PLUMBLINE_FOLLOWED_H__
#define __PLUMBLINE_FOLLOWED_H__

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1024);
	__type(key, u32);
	__type(value, u64);
} followed SEC(".maps"); /* bit tgid % 65536: keeps everybody else's cost to one load */

/* The PID namespace of the process ids that user space knows; 0 for the machine's own. */
const volatile u32 pid_namespace;
#define PID_NAMESPACES_MAX 32 /* the kernel's own limit of nesting */

/* The task's process id in the namespace; 0 if it is not in there. */
static __noinline u32 tgid_within(struct task_struct *task)
{
	struct pid *pid = task->group_leader->thread_pid;
	u32 level = BPF_CORE_READ(pid, level);
	for (u32 i = 1; i < PID_NAMESPACES_MAX && i <= level; i++) {
		struct upid upid = {};

		bpf_core_read(&upid, sizeof(upid), &pid->numbers[i]);
		if (BPF_CORE_READ(upid.ns, ns.inum) == pid_namespace)
			return upid.nr;
	}
	return 0;
}

/* The task's process id as user space knows it; 0 if it does not. */
static __always_inline u32 tgid_of(struct task_struct *task)
{
	return pid_namespace ? tgid_within(task) : task->tgid;
}

/* Is the process one of the followed ones, or one whose number has the same bit? */
static __always_inline bool maybe_followed(u32 tgid)
{
	u32 word = tgid >> 6 & 1023;
	u64 *bits = bpf_map_lookup_elem(&followed, &word);

	return bits && *bits >> (tgid & 63) & 1;
}

#endif
