//go:build ignore

/* Latency of each iSCSI session, as the initiator's kernel sees it and as the kernel's own target (LIO) does, from
 * the tracepoints of the modules scsi_mod and target_core_mod. User space loads a side once there is a session, or a
 * target, and passes the programs the disks that are not iSCSI's.
 *
 * They are raw tracepoints: those by BTF would need CAP_SYS_ADMIN for the modules' types.
 */
#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "scsi.h"

char LICENSE[] SEC("license") = "GPL";

/* The request that a command is the driver's part of: it lies before it. */
static __always_inline struct request *request_of(u64 command)
{
	return (void *)command - bpf_core_type_size(struct request);
}

/* A command is about to go to the host's driver. A retry comes here again. One that the kernel sends
 * to a device that has no disk yet, as while it looks for more of them, may end when it has one: it is kept, so that
 * its end is not one without a beginning.
 */
SEC("raw_tp/scsi_dispatch_cmd_start")
int iscsi_request_begins(struct bpf_raw_tracepoint_args *ctx)
{
	struct request *rq = request_of(ctx->args[0]);
	bool diskless = !BPF_CORE_READ(rq, q, disk);
	u32 number = disk_number(rq);

	if (number == IGNORED && !diskless)
		return 0;
	struct operation o = {.start = bpf_ktime_get_ns(), .number = number, .op = op_of_request(rq)};
	if (o.op == OP_READ || o.op == OP_WRITE)
		o.bytes = BPF_CORE_READ(rq, __data_len);
	begins(ctx->args[0], &o);
	return 0;
}

/* The driver has no room for it: it was not sent, and begins anew later. */
SEC("raw_tp/scsi_dispatch_cmd_error")
int iscsi_request_refused(struct bpf_raw_tracepoint_args *ctx)
{
	u64 command = ctx->args[0];

	bpf_map_delete_elem(&operations, &command);
	return 0;
}

/* The kernel's timeout has expired. It may give the command more time, or abort it: then nothing reports its end. */
SEC("raw_tp/scsi_dispatch_cmd_timeout")
int iscsi_request_late(struct bpf_raw_tracepoint_args *ctx)
{
	u64 command = ctx->args[0];
	struct operation *o = bpf_map_lookup_elem(&operations, &command);

	if (o)
		o->given_up = 1;
	return 0;
}

/* Its answer has come, or its session has gone. */
SEC("raw_tp/scsi_dispatch_cmd_done")
int iscsi_request_ends(struct bpf_raw_tracepoint_args *ctx)
{
	u64 command = ctx->args[0];
	struct request *rq = request_of(command);
	u32 result = BPF_CORE_READ((struct scsi_cmnd *)command, result);
	struct operation *o = bpf_map_lookup_elem(&operations, &command);

	if (!o) {
		/* What the kernel itself refused, such as one to a disk that is being removed, was never sent. */
		if (!SCSI_HOST(result) && disk_number(rq) != IGNORED && begun_since(rq))
			count(EVENT_UNMATCHED);
		return 0;
	}
	ends(command, o, SCSI_HOST(result) || SCSI_STATUS(result));
	return 0;
}

/* The target serves other networks, too, by the same tracepoints. */
static __always_inline bool of_iscsi(struct se_cmd *command)
{
	char name[6] = {};

	bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(command, se_tfo, fabric_name));
	return name[0] == 'i' && name[1] == 'S' && name[2] == 'C' && name[3] == 'S' && name[4] == 'I' && !name[5];
}

static __always_inline u64 mix(const u64 *words, u32 n)
{
	u64 sum = 0xcbf29ce484222325;

	for (u32 i = 0; i < n; i++)
		sum = (sum ^ words[i]) * 0x100000001b3;
	return sum;
}

/* Where the target's end of a command's connection keeps its own address. */
static __always_inline void *local_address(struct se_cmd *command)
{
	struct iscsit_cmd *whole = (void *)command - bpf_core_field_offset(struct iscsit_cmd, se_cmd);

	return (void *)BPF_CORE_READ(whole, conn) + bpf_core_field_offset(struct iscsit_conn, local_sockaddr);
}

/* The export that a command requests; whether the target has it is not known yet. Not inlined: its names take room. */
static __noinline int export_key_of(struct se_cmd *command, struct export_key *key)
{
	struct se_portal_group *group = BPF_CORE_READ(command, se_sess, se_tpg);
	u64 name[NQN_SIZE / sizeof(u64)] = {}, address[SOCKADDR_MAX / sizeof(u64) + 1] = {};
	void *from = local_address(command);
	u16 family = 0;

	if (!key)
		return 0;
	bpf_probe_read_kernel_str(name, sizeof(name), BPF_CORE_READ(group, se_tpg_wwn, wwn_group.cg_item.ci_name));
	bpf_probe_read_kernel(&family, sizeof(family), from);
	if (family == AF_INET)
		bpf_probe_read_kernel(address, SOCKADDR_IN, from);
	else
		bpf_probe_read_kernel(address, SOCKADDR_MAX, from);
	key->subsystem = (u64)group;
	key->serial = mix(name, sizeof(name) / sizeof(name[0]));
	key->port = mix(address, sizeof(address) / sizeof(address[0]));
	key->namespace = BPF_CORE_READ(command, orig_fe_lun);
	return 0;
}

/* The number of what a command was for, a new one at its first sight. */
static __always_inline u32 export_number(struct se_cmd *command, struct export_key *key)
{
	struct export *known = bpf_map_lookup_elem(&exports, key);

	if (known)
		return known->number;
	struct export *fresh = export_new(0);
	if (!fresh)
		return 0;
	struct se_portal_group *group = (void *)key->subsystem;
	fresh->inner = BPF_CORE_READ(command, se_lun, unpacked_lun);
	bpf_probe_read_kernel_str(fresh->nqn, sizeof(fresh->nqn), BPF_CORE_READ(group, se_tpg_wwn, wwn_group.cg_item.ci_name));
	bpf_probe_read_kernel_str(fresh->service, sizeof(fresh->service), BPF_CORE_READ(group, tpg_group.cg_item.ci_name));
	bpf_probe_read_kernel(fresh->address, SOCKADDR_MAX, local_address(command));
	return export_enter(key, fresh);
}

/* The target has read a command; the data of a write may be yet to come. */
SEC("raw_tp/target_sequencer_start")
int iscsi_service_begins(struct bpf_raw_tracepoint_args *ctx)
{
	struct se_cmd *command = (void *)ctx->args[0];
	struct se_session *session = BPF_CORE_READ(command, se_sess);
	struct export_key key = {};

	if (!session || !of_iscsi(command))
		return 0;
	struct operation o = {.start = bpf_ktime_get_ns(), .controller = (u64)session, .identifier = BPF_CORE_READ(command, tag)};
	o.op = op_of_command(BPF_CORE_READ(command, t_task_cdb));
	/* The end of one that the initiator aborts is not reported. */
	o.given_up = 1;
	export_key_of(command, &key);
	controller_seen(session, key.subsystem, o.start);
	struct export *known = bpf_map_lookup_elem(&exports, &key);
	if (known)
		o.number = known->number;
	begins(ctx->args[0], &o);
	return 0;
}

/* The target is about to answer. */
SEC("raw_tp/target_cmd_complete")
int iscsi_service_ends(struct bpf_raw_tracepoint_args *ctx)
{
	u64 request = ctx->args[0];
	struct se_cmd *command = (void *)request;
	struct se_session *session = BPF_CORE_READ(command, se_sess);
	struct se_lun *lun = BPF_CORE_READ(command, se_lun);
	struct export_key key = {};

	if (!session || !of_iscsi(command))
		return 0;
	bool failed = BPF_CORE_READ(command, scsi_status);
	struct operation o = {.start = bpf_ktime_get_ns(), .op = op_of_command(BPF_CORE_READ(command, t_task_cdb))};
	struct operation *begun = bpf_map_lookup_elem(&operations, &request);
	if (begun) {
		if (begun->controller == (u64)session && begun->identifier == (u16)BPF_CORE_READ(command, tag))
			o = *begun;
		else
			replaced(request);
		bpf_map_delete_elem(&operations, &request);
	}
	export_key_of(command, &key);
	controller_seen(session, key.subsystem, bpf_ktime_get_ns());
	/* The target has no such LUN, and answers in its place. */
	if (!lun || lun == BPF_CORE_READ(command, se_sess, se_tpg, tpg_virt_lun0))
		return 0;
	if (!begun && !failed) {
		count(EVENT_UNMATCHED);
		return 0;
	}
	if (!o.number)
		o.number = export_number(command, &key);
	if (o.op == OP_READ || o.op == OP_WRITE)
		o.bytes = BPF_CORE_READ(command, data_length);
	operation_add(&o, failed);
	return 0;
}
