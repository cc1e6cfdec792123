/* What the programs of iSCSI read of the kernel's SCSI. */
#ifndef __PLUMBLINE_SCSI_H__
#define __PLUMBLINE_SCSI_H__

#include "../../../bpf/request.h"
#include "../socket.h"
#include "cdb.h"
#include "fabric.h"

/* The parts of a command's result at the initiator: the target's status, and whether there was an answer at all. */
#define SCSI_STATUS(result) ((result)&0xff)
#define SCSI_HOST(result) ((result) >> 16 & 0xff)

#define SOCKADDR_IN 8 /* the part of struct sockaddr_in with family, port, address */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

/* Of the modules scsi_mod, target_core_mod and iscsi_target_mod. */
struct scsi_cmnd {
	int result;
};

struct config_item {
	char *ci_name;
};

struct config_group {
	struct config_item cg_item;
};

struct se_wwn {
	struct config_group wwn_group;
};

struct se_lun {
	u64 unpacked_lun;
};

struct se_portal_group {
	struct se_lun *tpg_virt_lun0;
	struct se_wwn *se_tpg_wwn;
	struct config_group tpg_group;
};

struct se_session {
	struct se_portal_group *se_tpg;
};

struct target_core_fabric_ops {
	const char *fabric_name;
};

struct se_cmd {
	u8 scsi_status;
	u64 tag;
	u32 data_length;
	u64 orig_fe_lun;
	struct se_lun *se_lun;
	struct se_session *se_sess;
	const struct target_core_fabric_ops *se_tfo;
	unsigned char *t_task_cdb;
};

struct __kernel_sockaddr_storage {
	u16 ss_family;
};

struct iscsit_conn {
	struct __kernel_sockaddr_storage local_sockaddr;
};

struct iscsit_cmd {
	struct iscsit_conn *conn;
	struct se_cmd se_cmd;
};

#pragma clang attribute pop

/* What a request does on a disk, as the block layer has it. */
static __always_inline u8 op_of_request(struct request *rq)
{
	switch (BPF_CORE_READ(rq, cmd_flags) & REQ_OP_MASK) {
	case REQ_OP_READ:
		return OP_READ;
	case REQ_OP_WRITE:
		return OP_WRITE;
	case REQ_OP_FLUSH:
		return OP_SYNC;
	case REQ_OP_DISCARD:
		return OP_UNMAP;
	}
	return OP_OTHER;
}

/* What a command descriptor block in the kernel's memory requests. */
static __always_inline u8 op_of_command(void *block)
{
	u8 b[SCSI_SERVICE_ACTION + 1] = {};

	bpf_probe_read_kernel(b, sizeof(b), block);
	return op_of_block(b);
}

#endif
