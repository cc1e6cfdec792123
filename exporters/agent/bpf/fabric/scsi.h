/* What the programs of iSCSI read of the kernel's SCSI and of commands. Commands have the layout of the
 * SCSI standards (operation codes: SPC-6 and SBC-5, summarised in SPC-6 annex E), so they need no kernel type.
 */
#ifndef __PLUMBLINE_SCSI_H__
#define __PLUMBLINE_SCSI_H__

#include "../../../bpf/request.h"
#include "fabric.h"

enum scsi_opcode {
	SCSI_READ_6 = 0x08,
	SCSI_WRITE_6 = 0x0a,
	SCSI_READ_10 = 0x28,
	SCSI_WRITE_10 = 0x2a,
	SCSI_WRITE_VERIFY_10 = 0x2e,
	SCSI_SYNCHRONIZE_CACHE_10 = 0x35,
	SCSI_WRITE_SAME_10 = 0x41,
	SCSI_UNMAP = 0x42,
	SCSI_VARIABLE_LENGTH = 0x7f,
	SCSI_READ_16 = 0x88,
	SCSI_WRITE_16 = 0x8a,
	SCSI_WRITE_VERIFY_16 = 0x8e,
	SCSI_SYNCHRONIZE_CACHE_16 = 0x91,
	SCSI_WRITE_SAME_16 = 0x93,
	SCSI_READ_12 = 0xa8,
	SCSI_WRITE_12 = 0xaa,
	SCSI_WRITE_VERIFY_12 = 0xae,
};

/* WRITE SAME with this bit of its second byte unmaps. */
#define SCSI_WRITE_SAME_UNMAPS 0x08

/* Of a command of variable length the last byte of its service action tells. */
#define SCSI_SERVICE_ACTION 9
enum scsi_service_action {
	SCSI_READ_32 = 0x09,
	SCSI_WRITE_32 = 0x0b,
	SCSI_WRITE_VERIFY_32 = 0x0c,
};

/* The parts of a command's result at the initiator: the target's status, and whether there was an answer at all. */
#define SCSI_STATUS(result) ((result) & 0xff)
#define SCSI_HOST(result) ((result) >> 16 & 0xff)

#define SOCKADDR_MAX 28 /* struct sockaddr_in6 */
#define SOCKADDR_IN 8   /* what tells of struct sockaddr_in: family, port, address */
#define AF_INET 2

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

/* What a request asks of a disk, as the block layer has it. */
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

/* What a command descriptor block asks. */
static __always_inline u8 op_of_command(void *block)
{
	u8 b[SCSI_SERVICE_ACTION + 1] = {};

	bpf_probe_read_kernel(b, sizeof(b), block);
	switch (b[0]) {
	case SCSI_READ_6:
	case SCSI_READ_10:
	case SCSI_READ_12:
	case SCSI_READ_16:
		return OP_READ;
	case SCSI_WRITE_6:
	case SCSI_WRITE_10:
	case SCSI_WRITE_12:
	case SCSI_WRITE_16:
	case SCSI_WRITE_VERIFY_10:
	case SCSI_WRITE_VERIFY_12:
	case SCSI_WRITE_VERIFY_16:
		return OP_WRITE;
	case SCSI_SYNCHRONIZE_CACHE_10:
	case SCSI_SYNCHRONIZE_CACHE_16:
		return OP_SYNC;
	case SCSI_UNMAP:
		return OP_UNMAP;
	case SCSI_WRITE_SAME_10:
	case SCSI_WRITE_SAME_16:
		return b[1] & SCSI_WRITE_SAME_UNMAPS ? OP_UNMAP : OP_OTHER;
	case SCSI_VARIABLE_LENGTH:
		switch (b[SCSI_SERVICE_ACTION]) {
		case SCSI_READ_32:
			return OP_READ;
		case SCSI_WRITE_32:
		case SCSI_WRITE_VERIFY_32:
			return OP_WRITE;
		}
	}
	return OP_OTHER;
}

#endif
