/* The wire of iSCSI (RFC 7143): the basic header segment of a message (PDU), 48 bytes, big endian. What follows it is
 * the additional header (attached), a digest of both if agreed, the data padded to four bytes, and a digest of these
 * if agreed. The user-space counterpart is the Go package exporters/agent/iscsipdu: change both.
 */
#ifndef __PLUMBLINE_ISCSI_PDU_H__
#define __PLUMBLINE_ISCSI_PDU_H__

#include "cdb.h"
#include "message.h"

#define PDU_HEADER 48

enum pdu_opcode {
	PDU_NOP_OUT = 0x00,
	PDU_SCSI_COMMAND = 0x01,
	PDU_TASK_REQUEST = 0x02,
	PDU_LOGIN_REQUEST = 0x03,
	PDU_TEXT_REQUEST = 0x04,
	PDU_DATA_OUT = 0x05,
	PDU_LOGOUT_REQUEST = 0x06,
	PDU_SNACK = 0x10,
	PDU_NOP_IN = 0x20,
	PDU_SCSI_RESPONSE = 0x21,
	PDU_TASK_RESPONSE = 0x22,
	PDU_LOGIN_RESPONSE = 0x23,
	PDU_TEXT_RESPONSE = 0x24,
	PDU_DATA_IN = 0x25,
	PDU_LOGOUT_RESPONSE = 0x26,
	PDU_R2T = 0x31,
	PDU_ASYNC = 0x32,
	PDU_REJECT = 0x3f,
};

#define PDU_IMMEDIATE 0x40 /* of the first byte, to the target */
#define PDU_FINAL 0x80     /* of the second byte */
#define PDU_STATUS 0x01    /* of the second byte of Data-In: it has the command's status */
#define PDU_CONTINUE 0x40  /* of the second byte of a login: its text goes on in the next one */
#define PDU_STAGE 0x03     /* of the same: the next stage; full feature phase is 3 */
#define PDU_ATTACHED_MAX 64

/* Bits of the second byte that are 0: of a login's messages, and of a command. */
#define PDU_LOGIN_RESERVED 0x30
#define PDU_COMMAND_RESERVED 0x18

/* Functions of a task management request. */
enum task_function {
	TASK_ABORT = 1,
	TASK_ABORT_SET = 2,
	TASK_CLEAR_SET = 4,
	TASK_RESET_UNIT = 5,
	TASK_RESET_WARM = 6,
	TASK_RESET_COLD = 7,
};

static __always_inline u32 be32(const u8 *p)
{
	return (u32)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
}

static __always_inline u64 opcode_bit(u8 opcode)
{
	return 1ULL << opcode;
}

/* Opcodes that may come to a target, those that may come from one, those of them without data, and those whose
 * second byte begins with a one. */
#define PDU_TO_TARGET \
	(opcode_bit(PDU_NOP_OUT) | opcode_bit(PDU_SCSI_COMMAND) | opcode_bit(PDU_TASK_REQUEST) | opcode_bit(PDU_LOGIN_REQUEST) | \
		opcode_bit(PDU_TEXT_REQUEST) | opcode_bit(PDU_DATA_OUT) | opcode_bit(PDU_LOGOUT_REQUEST) | opcode_bit(PDU_SNACK))
#define PDU_FROM_TARGET \
	(opcode_bit(PDU_NOP_IN) | opcode_bit(PDU_SCSI_RESPONSE) | opcode_bit(PDU_TASK_RESPONSE) | opcode_bit(PDU_LOGIN_RESPONSE) | \
		opcode_bit(PDU_TEXT_RESPONSE) | opcode_bit(PDU_DATA_IN) | opcode_bit(PDU_LOGOUT_RESPONSE) | opcode_bit(PDU_R2T) | \
		opcode_bit(PDU_ASYNC) | opcode_bit(PDU_REJECT))
#define PDU_WITHOUT_DATA \
	(opcode_bit(PDU_TASK_REQUEST) | opcode_bit(PDU_LOGOUT_REQUEST) | opcode_bit(PDU_SNACK) | opcode_bit(PDU_TASK_RESPONSE) | \
		opcode_bit(PDU_LOGOUT_RESPONSE) | opcode_bit(PDU_R2T))
#define PDU_ALWAYS_FINAL \
	(PDU_WITHOUT_DATA | opcode_bit(PDU_NOP_OUT) | opcode_bit(PDU_NOP_IN) | opcode_bit(PDU_SCSI_RESPONSE))

/* Does this command succeed on any LUN? */
static __always_inline bool is_anywhere(u8 opcode)
{
	return opcode == SCSI_INQUIRY || opcode == SCSI_REQUEST_SENSE || opcode == SCSI_REPORT_LUNS;
}

/* What a task management request is about. */
static __always_inline u8 task_scope(u8 function)
{
	switch (function) {
	case TASK_ABORT:
		return TASK_ONE;
	case TASK_ABORT_SET:
	case TASK_CLEAR_SET:
	case TASK_RESET_UNIT:
		return TASK_UNIT;
	case TASK_RESET_WARM:
	case TASK_RESET_COLD:
		return TASK_SESSION;
	}
	return TASK_NONE;
}

static __noinline int wire_parse(const u8 *h, struct message *m, bool to_target)
{
	u8 opcode = h[0] & 0x3f;
	u64 bit = opcode_bit(opcode);

	if (h[0] & (to_target ? 0x80 : 0xc0) || !(bit & (to_target ? PDU_TO_TARGET : PDU_FROM_TARGET)))
		return -1;
	__builtin_memset(m, 0, sizeof(*m));
	m->data = (u32)h[5] << 16 | h[6] << 8 | h[7];
	m->rest = h[4] * 4 + ((m->data + 3) & ~3u);
	if (h[4] > (opcode == PDU_SCSI_COMMAND ? PDU_ATTACHED_MAX : 0))
		return -1;
	if (m->data && bit & PDU_WITHOUT_DATA)
		return -1;
	if (bit & PDU_ALWAYS_FINAL && !(h[1] & PDU_FINAL))
		return -1;
	if ((opcode == PDU_LOGIN_REQUEST || opcode == PDU_LOGIN_RESPONSE) && h[1] & PDU_LOGIN_RESERVED)
		return -1;
	if (opcode == PDU_SCSI_COMMAND && h[1] & PDU_COMMAND_RESERVED)
		return -1;
	m->doubtful = !(h[1] & PDU_FINAL) || h[2] || h[3] || h[4];
	m->tag = be32(h + 16);
	m->op = OP_OTHER;
	if (opcode == PDU_SCSI_COMMAND || opcode == PDU_TASK_REQUEST)
		m->lun = ((u32)h[10] << 8 | h[11]) << 16 | (u32)h[8] << 8 | h[9];
	switch (opcode) {
	case PDU_SCSI_COMMAND:
		m->kind = MESSAGE_COMMAND;
		m->op = op_of_block(h + 32);
		m->anywhere = is_anywhere(h[32]);
		if (m->op == OP_READ || m->op == OP_WRITE)
			m->bytes = be32(h + 20);
		break;
	case PDU_DATA_IN:
		if (!(h[1] & PDU_STATUS))
			break;
		m->kind = MESSAGE_ANSWER;
		m->failed = h[3] != 0;
		break;
	case PDU_SCSI_RESPONSE:
		m->kind = MESSAGE_ANSWER;
		m->failed = h[2] || h[3];
		break;
	case PDU_LOGIN_REQUEST:
	case PDU_LOGIN_RESPONSE:
		m->kind = opcode == PDU_LOGIN_REQUEST ? MESSAGE_LOGIN : MESSAGE_LOGIN_ANSWER;
		m->doubtful = 0;
		m->text = m->data;
		m->continues = !!(h[1] & PDU_CONTINUE);
		m->final = h[1] & PDU_FINAL && (h[1] & PDU_STAGE) == PDU_STAGE && (opcode == PDU_LOGIN_REQUEST || !h[36]);
		break;
	case PDU_TASK_REQUEST:
		m->kind = MESSAGE_TASK;
		m->scope = task_scope(h[1] & 0x7f);
		m->reference = be32(h + 20);
		break;
	case PDU_REJECT:
		m->kind = MESSAGE_REJECTED;
		m->text = m->data;
		break;
	case PDU_TASK_RESPONSE:
		m->kind = MESSAGE_TASK_ANSWER;
		m->failed = h[2] != 0;
		break;
	}
	return 0;
}

#define WIRE_HEADER_MAX PDU_HEADER
#define WIRE_GUESSES 1

static __always_inline u32 wire_need(const u8 *h, u32 have)
{
	return PDU_HEADER;
}

static __always_inline bool wire_begins(const u8 *h, u32 have)
{
	return (h[0] & ~PDU_IMMEDIATE) == PDU_LOGIN_REQUEST && (have < 2 || !(h[1] & PDU_LOGIN_RESERVED));
}

#endif
