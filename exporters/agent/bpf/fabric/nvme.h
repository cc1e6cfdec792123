/* What the programs of NVMe over Fabrics read of the kernel and of commands. Commands have the layout of the NVMe base specification (2.0, figures 86 and 87; the NVM
 * command set's opcodes: NVM command set specification 1.0, figure 22), so they need no kernel type.
 */
#ifndef __PLUMBLINE_NVME_H__
#define __PLUMBLINE_NVME_H__

#include "fabric.h"

/* Where a command has its opcode, its identifier and its namespace's number, or a fabrics command its
 * type. */
#define COMMAND_OPCODE 0
#define COMMAND_IDENTIFIER 2
#define COMMAND_NAMESPACE 4
#define FABRICS_CONNECT 0x01

enum nvme_opcode {
	NVME_FLUSH = 0x00,
	NVME_WRITE = 0x01,
	NVME_READ = 0x02,
	NVME_DATASET_MANAGEMENT = 0x09, /* of its uses, the kernel's initiator sends deallocate alone */
	NVME_FABRICS = 0x7f,            /* of the connection itself, such as a queue's first command */
};

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

static __always_inline u8 op_of(u8 opcode)
{
	switch (opcode) {
	case NVME_FLUSH:
		return OP_SYNC;
	case NVME_WRITE:
		return OP_WRITE;
	case NVME_READ:
		return OP_READ;
	case NVME_DATASET_MANAGEMENT:
		return OP_UNMAP;
	}
	return OP_OTHER;
}

#endif
