/* What programs on block requests read of a request, on every kernel. */
#ifndef __PLUMBLINE_REQUEST_H__
#define __PLUMBLINE_REQUEST_H__

#define REQ_OP_MASK 0xff

/* rq_flag returns the mask of a request flag: by the kernel's enum of its bit numbers, if that has a name. Without a
 * name it cannot be looked up: then the kernel is a first one with the enum, and its numbers are those in vmlinux.h,
 * or one before it, with the old values. Another member that came with the same release (6.11) shows which, as a
 * version does not where it was put into an older kernel.
 */
#define rq_flag(name, old) \
	(bpf_core_enum_value_exists(enum rqf_flags, name) \
			? 1U << bpf_core_enum_value(enum rqf_flags, name) \
		: bpf_core_field_exists(struct queue_limits, features) ? 1U << name \
								       : (old))

#endif
