//go:build ignore

/* Latency of each NVMe over Fabrics path, as the initiator's kernel sees it and as the target's does,
 * from the tracepoints of the modules nvme_core and nvmet. Two programs for each side; user space loads
 * a side once its module is there and has something to do.
 *
 * They are raw tracepoints: those by BTF would need CAP_SYS_ADMIN for the modules' types.
 */
#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#include "nvme.h"

char LICENSE[] SEC("license") = "GPL";

/* A command is about to go to the controller. A retry comes here again. */
SEC("raw_tp/nvme_setup_cmd")
int nvme_request_begins(struct bpf_raw_tracepoint_args *ctx)
{
	struct request *rq = (void *)ctx->args[0];
	u32 number = disk_number(rq);

	if (number == IGNORED)
		return 0;
	struct operation o = {.start = bpf_ktime_get_ns(), .number = number, .op = op_of(opcode_of((void *)ctx->args[1]))};
	if (o.op == OP_READ || o.op == OP_WRITE)
		o.bytes = BPF_CORE_READ(rq, __data_len);
	begins((u64)rq, &o);
	return 0;
}

/* Its answer has come, or it was given up: what is retried ends here, too. */
SEC("raw_tp/nvme_complete_rq")
int nvme_request_ends(struct bpf_raw_tracepoint_args *ctx)
{
	u64 request = ctx->args[0];
	struct request *rq = (void *)request;
	struct operation *o = bpf_map_lookup_elem(&operations, &request);

	if (!o) {
		if (disk_number(rq) != IGNORED && begun_since(rq))
			count(EVENT_UNMATCHED);
		return 0;
	}
	/* The driver's part of a request lies behind it. */
	struct nvme_request *own = (void *)rq + bpf_core_type_size(struct request);
	ends(request, o, BPF_CORE_READ(own, status));
	return 0;
}

static __always_inline bool failed(struct nvmet_req *req)
{
	return BPF_CORE_READ(req, cqe, status) >> 1;
}

static __always_inline void export_key_of(struct nvmet_req *req, struct nvmet_ctrl *ctrl, u32 namespace, struct export_key *key)
{
	struct nvmet_subsys *subsystem = BPF_CORE_READ(ctrl, subsys);

	key->subsystem = (u64)subsystem;
	key->port = (u64)BPF_CORE_READ(req, port);
	key->namespace = namespace;
	bpf_probe_read_kernel(&key->serial, sizeof(key->serial), (void *)subsystem + bpf_core_field_offset(struct nvmet_subsys, serial));
}

/* The number of what a command was for, a new one when it is first seen. The namespace is the command's only if
 * the target has it: initiators may request any. */
static __always_inline u32 export_number(struct nvmet_req *req, struct nvmet_ctrl *ctrl, void *command)
{
	struct export_key key = {};
	struct nvmet_subsys *subsystem;

	export_key_of(req, ctrl, BPF_CORE_READ(req, ns) ? namespace_of(command) : 0, &key);
	struct export *known = bpf_map_lookup_elem(&exports, &key);
	if (known)
		return known->number;
	struct export *fresh = export_new(0);
	if (!fresh)
		return 0;
	subsystem = (void *)key.subsystem;
	bpf_probe_read_kernel_str(fresh->nqn, sizeof(fresh->nqn), BPF_CORE_READ(subsystem, subsysnqn));
	void *entry = (void *)key.port + bpf_core_field_offset(struct nvmet_port, disc_addr);
	bpf_probe_read_kernel_str(fresh->address, sizeof(fresh->address), entry + bpf_core_field_offset(struct nvmf_disc_rsp_page_entry, traddr));
	bpf_probe_read_kernel_str(fresh->service, sizeof(fresh->service), entry + bpf_core_field_offset(struct nvmf_disc_rsp_page_entry, trsvcid));
	return export_enter(&key, fresh);
}

/* The target has read a command; of a write that is too large for it, the data is yet to come. */
SEC("raw_tp/nvmet_req_init")
int nvme_service_begins(struct bpf_raw_tracepoint_args *ctx)
{
	struct nvmet_req *req = (void *)ctx->args[0];
	void *command = (void *)ctx->args[1];
	struct nvmet_ctrl *ctrl = BPF_CORE_READ(req, sq, ctrl);
	struct export_key key = {};
	u8 opcode = opcode_of(command);

	if (!ctrl)
		return 0; /* the queue is not connected yet */
	struct operation o = {.start = bpf_ktime_get_ns(), .controller = (u64)ctrl, .identifier = identifier_of(command), .op = op_of(opcode)};
	controller_seen(ctrl, (u64)BPF_CORE_READ(ctrl, subsys), o.start);
	if (!BPF_CORE_READ(req, sq, qid) || opcode == NVME_FABRICS)
		return 0; /* the controller's own queue */
	/* Not entered here: whether the target has this namespace is not known yet. */
	export_key_of(req, ctrl, namespace_of(command), &key);
	struct export *known = bpf_map_lookup_elem(&exports, &key);
	if (known)
		o.number = known->number;
	begins((u64)req, &o);
	return 0;
}

/* The target is about to answer. A command that it refuses at once, such as one on a path that it has closed, is
 * reported by its end alone. */
SEC("raw_tp/nvmet_req_complete")
int nvme_service_ends(struct bpf_raw_tracepoint_args *ctx)
{
	u64 request = ctx->args[0], now = bpf_ktime_get_ns();
	struct nvmet_req *req = (void *)request;
	struct nvmet_ctrl *ctrl = BPF_CORE_READ(req, sq, ctrl);
	void *command = BPF_CORE_READ(req, cmd);
	u8 opcode = opcode_of(command);

	if (!ctrl)
		return 0;
	if (opcode == NVME_FABRICS || !BPF_CORE_READ(req, sq, qid)) {
		u64 key = (u64)ctrl;
		struct controller fresh = {.seen = now, .since = now, .subsystem = (u64)BPF_CORE_READ(ctrl, subsys)};

		/* A new controller: whatever its address had under way before is over. */
		if (opcode == NVME_FABRICS && !BPF_CORE_READ(req, sq, qid) && (u8)namespace_of(command) == FABRICS_CONNECT && !failed(req))
			bpf_map_update_elem(&controllers, &key, &fresh, BPF_ANY);
		return 0;
	}
	struct operation o = {.start = now, .op = op_of(opcode)};
	struct operation *begun = bpf_map_lookup_elem(&operations, &request);
	if (begun) {
		if (begun->controller == (u64)ctrl && begun->identifier == identifier_of(command))
			o = *begun;
		else
			count(EVENT_REPLACED);
		bpf_map_delete_elem(&operations, &request);
	} else if (!failed(req)) {
		count(EVENT_UNMATCHED);
		return 0;
	}
	if (!o.number)
		o.number = export_number(req, ctrl, command);
	if (o.op == OP_READ || o.op == OP_WRITE)
		o.bytes = BPF_CORE_READ(req, transfer_len);
	operation_add(&o, failed(req));
	return 0;
}
