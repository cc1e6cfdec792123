/* Reading the kernel's memory. Where the verifier has the type of a pointer, programs load from it directly. Elsewhere
 * they give an address its type by a cast (Linux 6.2): it costs nothing, and is allowed where the kernel is locked down
 * (lockdown=confidentiality). Older kernels have a helper for that. */
#ifndef __PLUMBLINE_KERNEL_H__
#define __PLUMBLINE_KERNEL_H__

extern void *bpf_rdonly_cast(const void *address, u32 type) __ksym __weak;

/* A type that came to the kernel with the cast: whether it is there is known when a program is loaded. */
struct bpf_list_head {
	u64 unused;
};
#define has_cast() bpf_core_type_exists(struct bpf_list_head)

/* The field of what is at an address, as if that were of the type; 0 if it cannot be read. */
#define read_as(type, address, field) \
	({ \
		const void *at_ = (const void *)(address); \
		typeof(((type *)0)->field) value_; \
		if (has_cast()) \
			value_ = ((type *)bpf_rdonly_cast(at_, bpf_core_type_id_kernel(type))) \
					 ->field; \
		else if (bpf_core_read((void *)&value_, sizeof(value_), &((type *)at_)->field)) \
			__builtin_memset((void *)&value_, 0, sizeof(value_)); \
		value_; \
	})

/* The field of what a pointer points to, whose type the verifier may not have. */
#define read_field(pointer, field) read_as(typeof(*(pointer)), pointer, field)

/* The pointer that is at an address. */
#define read_pointer(address) ((u64)read_as(struct list_head, address, next))

/* The process id of a task in its PID namespace of this level, and that namespace's number. */
struct id_within {
	u32 nr;
	u32 pid_namespace;
};

static __always_inline struct id_within id_at(struct pid *pid, u32 level)
{
	struct upid *upid = &pid->numbers[level];
	struct pid_namespace *ns = read_as(struct upid, upid, ns);
	struct id_within id = {
		.nr = read_as(struct upid, upid, nr),
		.pid_namespace = read_as(struct pid_namespace, ns, ns.inum),
	};
	return id;
}

#define MAX_PID_NAMESPACES 32 /* the kernel's own bound of nesting */

/* The task's process id in its own PID namespace. */
static __always_inline u32 inner_pid(struct task_struct *task)
{
	struct pid *pid = task->thread_pid;
	u32 level = pid->level;

	return level < MAX_PID_NAMESPACES ? id_at(pid, level).nr : 0;
}

#endif
