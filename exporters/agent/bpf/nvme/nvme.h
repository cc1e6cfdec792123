/* What the programs of NVMe over Fabrics read of the kernel and of commands, and what they tell user
 * space. Commands have the layout of the NVMe base specification (2.0, figures 86 and 87; the NVM
 * command set's opcodes: NVM command set specification 1.0, figure 22), so they need no kernel type.
 */
#ifndef __PLUMBLINE_NVME_H__
#define __PLUMBLINE_NVME_H__

#include "../operation.h"

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

/* Indices of the map events; Go's names for them are in types.go. */
enum event {
	EVENT_UNMATCHED,      /* a completion without a beginning */
	EVENT_REPLACED,       /* a beginning in the place of one whose completion was not seen */
	EVENT_LOST_OPERATION, /* map operations full */
	EVENT_LOST_SERIES,    /* map latencies full */
	EVENT_OTHER,          /* map disks or exports full: counted under number 0 */
	EVENTS,
};

#define DISK_NAME 32
#define NQN_SIZE 224 /* 223 bytes at most, by the specification, and a zero */
#define ADDRESS_SIZE 64
#define SERVICE_SIZE 32

/* A namespace as the initiator has it, on one path. Names are used again; then its structure is
 * another one. */
struct disk_key {
	u64 structure;
	char name[DISK_NAME];
};

/* A namespace that a target here serves, on one of its ports. A subsystem's serial number, which is
 * random, tells it from another one in the same memory. */
struct export_key {
	u64 subsystem;
	u64 serial;
	u64 port;
	u32 namespace;
	u32 pad;
};

/* What user space has to know of it. */
struct export {
	u32 number;
	u32 pad;
	char nqn[NQN_SIZE];
	char address[ADDRESS_SIZE];
	char service[SERVICE_SIZE];
};

/* A command without its completion, by the address of its request. */
struct operation {
	u64 start;      /* CLOCK_MONOTONIC, ns */
	u64 controller; /* the target's, 0 at the initiator */
	u32 number;     /* of the disk or export */
	u32 bytes;
	u16 identifier; /* the target's: a connection that breaks leaves commands without an end */
	u8 op;          /* enum wire_op */
	u8 pad[5];
};

/* A controller that a target here serves, by the address of its structure, which is used again. */
struct controller {
	u64 seen;      /* when it was last heard of */
	u64 since;     /* when it connected; 0 if that was not seen */
	u64 subsystem; /* as in export_key */
};

struct latency_key {
	u32 number;
	u8 op;
	u8 pad[3];
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

/* Sizes are the kernel's memory. Those given as 1 are set by user space before loading. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct disk_key);
	__type(value, u32);
} disks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct export_key);
	__type(value, struct export);
} exports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, struct controller);
} controllers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, struct operation);
} operations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* 2 KB each */
	__uint(max_entries, 1);
	__type(key, struct latency_key);
	__type(value, struct latency);
} latencies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENTS);
	__type(key, u32);
	__type(value, u64);
} events SEC(".maps");

/* Room for one program to put an export together: see ../README.md. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct export);
} scratch SEC(".maps");

u32 last_number; /* the latest number handed out */

/* Number of disks that user space does not want to hear of, such as those of this machine. */
#define IGNORED 0xffffffff

static __always_inline void count(u32 event)
{
	u64 *n = bpf_map_lookup_elem(&events, &event);

	if (n)
		__sync_fetch_and_add(n, 1);
}

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

static __always_inline void begins(u64 request, struct operation *o)
{
	long err = bpf_map_update_elem(&operations, &request, o, BPF_NOEXIST);

	if (err == -EEXIST) {
		count(EVENT_REPLACED);
		err = bpf_map_update_elem(&operations, &request, o, BPF_ANY);
	}
	if (err)
		count(EVENT_LOST_OPERATION);
}

static __always_inline void operation_add(struct operation *o, bool failed)
{
	struct latency_key key = { .number = o->number, .op = o->op };
	struct latency *l = bpf_map_lookup_elem(&latencies, &key);

	if (!l) {
		bpf_map_update_elem(&latencies, &key, &no_latency, BPF_NOEXIST);
		l = bpf_map_lookup_elem(&latencies, &key);
	}
	if (l)
		latency_add(l, bpf_ktime_get_ns() - o->start, o->bytes, failed);
	else
		count(EVENT_LOST_SERIES);
}

static __always_inline void ends(u64 request, struct operation *o, bool failed)
{
	operation_add(o, failed);
	bpf_map_delete_elem(&operations, &request);
}

#endif
