/* What the programs of NVMe over Fabrics read of the kernel. */
#ifndef __PLUMBLINE_NVME_H__
#define __PLUMBLINE_NVME_H__

#include "fabric.h"
#include "nvme_command.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Of the modules nvme_core and nvmet. */
struct nvme_command;

struct nvme_request {
	u16 status;
};

struct nvmf_disc_rsp_page_entry {
	char trsvcid[32];
	char traddr[256];
};

struct nvmet_port {
	struct nvmf_disc_rsp_page_entry disc_addr;
};

struct nvmet_subsys {
	char serial[20];
	char *subsysnqn;
};

struct nvmet_ctrl {
	struct nvmet_subsys *subsys;
};

struct nvmet_sq {
	struct nvmet_ctrl *ctrl;
	u16 qid;
};

struct nvme_completion {
	u16 status; /* little endian, as all machines are that the agent is built for; bit 0 is no part of it */
};

struct nvmet_ns;

struct nvmet_req {
	struct nvmet_ns *ns;
	struct nvme_command *cmd;
	struct nvme_completion *cqe;
	struct nvmet_sq *sq;
	u64 transfer_len;
	struct nvmet_port *port;
};

#pragma clang attribute pop

static __always_inline u8 opcode_of(void *command)
{
	u8 opcode = NVME_FABRICS;

	bpf_probe_read_kernel(&opcode, sizeof(opcode), command + COMMAND_OPCODE);
	return opcode;
}

static __always_inline u16 identifier_of(void *command)
{
	u16 identifier = 0;

	bpf_probe_read_kernel(&identifier, sizeof(identifier), command + COMMAND_IDENTIFIER);
	return identifier;
}

static __always_inline u32 namespace_of(void *command)
{
	u32 namespace = 0;

	bpf_probe_read_kernel(&namespace, sizeof(namespace), command + COMMAND_NAMESPACE);
	return namespace;
}

#endif
