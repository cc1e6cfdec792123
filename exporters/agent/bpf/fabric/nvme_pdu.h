/* The wire of NVMe over TCP (NVMe/TCP transport specification 1.0): the header of a message (PDU), little endian: a
 * common header of 8 bytes, with the type, the header's length and the message's, and what is the type's own. Digests
 * are in the lengths. The layouts of commands and completions are the base specification's (2.0). The user-space
 * counterpart is the Go package exporters/agent/nvmepdu: change both.
 */
#ifndef __PLUMBLINE_NVME_PDU_H__
#define __PLUMBLINE_NVME_PDU_H__

#include "../little_endian.h"
#include "message.h"
#include "nvme_command.h"

#define WIRE_HEADER_MAX 72
#define WIRE_GUESSES 0

#define PDU_COMMON 8

enum pdu_type {
	PDU_INITIALIZE = 0x00,
	PDU_INITIALIZED = 0x01,
	PDU_HOST_TERMINATES = 0x02,
	PDU_CONTROLLER_TERMINATES = 0x03,
	PDU_COMMAND = 0x04,
	PDU_RESPONSE = 0x05,
	PDU_HOST_DATA = 0x06,
	PDU_CONTROLLER_DATA = 0x07,
	PDU_READY_TO_TRANSFER = 0x09,
};

/* Flags of the common header. */
#define PDU_LAST 0x04
#define PDU_SUCCESS 0x08 /* of the last data of a read: no response follows */

/* Where a message has its parts. */
#define PDU_FLAGS 1
#define PDU_HEADER_LENGTH 2
#define PDU_DATA_OFFSET 3
#define PDU_LENGTH 4
#define PDU_SUBMISSION 8                         /* of a command: the submission queue's entry */
#define PDU_SGL_LENGTH (PDU_SUBMISSION + 24 + 8) /* of its data */
#define PDU_QUEUE (PDU_SUBMISSION + 42)          /* of the command that connects a queue */
#define PDU_COMPLETION 8                         /* of a response: the completion queue's entry */
#define PDU_DATA_COMMAND 8                       /* of data: its command's identifier */

/* Longer than any that are sent: Linux' data is cut at 1 MiB, SPDK's at 128 KiB. */
#define PDU_LENGTH_MAX (64 << 20)

/* Of what a connect command brings, the subsystem's name begins there. */
#define CONNECT_NAME 256

/* The header's length of a type; 0 of one that is none. */
static __always_inline u32 pdu_header(u8 type)
{
	switch (type) {
	case PDU_INITIALIZE:
	case PDU_INITIALIZED:
		return 128;
	case PDU_COMMAND:
		return 72;
	case PDU_HOST_TERMINATES:
	case PDU_CONTROLLER_TERMINATES:
	case PDU_RESPONSE:
	case PDU_HOST_DATA:
	case PDU_CONTROLLER_DATA:
	case PDU_READY_TO_TRANSFER:
		return 24;
	}
	return 0;
}

/* As much of it as is read. */
static __always_inline u32 wire_need(const u8 *h, u32 have)
{
	u32 length;

	if (have < PDU_COMMON)
		return PDU_COMMON;
	length = pdu_header(h[0]);
	return length && length <= WIRE_HEADER_MAX ? length : PDU_COMMON;
}

static __always_inline bool wire_begins(const u8 *h, u32 have)
{
	return h[0] == PDU_INITIALIZE && (have < PDU_COMMON || le32(h + PDU_LENGTH) == 128);
}

/* A namespace that a command can be for. */
static __always_inline bool is_namespace(u32 namespace)
{
	return namespace && namespace != 0xffffffff;
}

static __always_inline int command_parse(const u8 *h, struct message *m)
{
	const u8 *entry = h + PDU_SUBMISSION;
	u8 opcode = entry[COMMAND_OPCODE];

	m->tag = le16(entry + COMMAND_IDENTIFIER);
	if (opcode == NVME_FABRICS && entry[COMMAND_NAMESPACE] == FABRICS_CONNECT) {
		m->kind = MESSAGE_LOGIN;
		m->reference = le16(h + PDU_QUEUE);
		if (h[PDU_DATA_OFFSET] > WIRE_HEADER_MAX)
			m->lead = h[PDU_DATA_OFFSET] - WIRE_HEADER_MAX; /* a digest, and padding */
		m->text = m->rest > m->lead ? m->rest - m->lead : 0;
		return 0;
	}
	m->kind = MESSAGE_COMMAND;
	m->op = OP_OTHER;
	/* Of the connection, or of the controller. */
	m->anywhere = 1;
	if (opcode == NVME_FABRICS)
		return 0;
	m->lun = le32(entry + COMMAND_NAMESPACE);
	if (is_namespace(m->lun)) {
		m->op = op_of(opcode);
		m->anywhere = 0;
	}
	if (m->op == OP_READ || m->op == OP_WRITE)
		m->bytes = le32(h + PDU_SGL_LENGTH);
	return 0;
}

static __noinline int wire_parse(const u8 *h, struct message *m, bool to_target)
{
	u8 type = h[0];
	u32 header = pdu_header(type), length = le32(h + PDU_LENGTH);
	/* The host's types are even. */
	if (!header || (type & 1) == to_target || h[PDU_FLAGS] & 0xf0 || h[PDU_HEADER_LENGTH] != header || length < header || length > PDU_LENGTH_MAX)
		return -1;
	__builtin_memset(m, 0, sizeof(*m));
	m->op = OP_OTHER;
	m->rest = length - wire_need(h, PDU_COMMON);
	switch (type) {
	case PDU_INITIALIZE:
		m->kind = MESSAGE_HELLO;
		break;
	case PDU_COMMAND:
		return command_parse(h, m);
	case PDU_RESPONSE:
		m->kind = MESSAGE_ANSWER;
		m->tag = le16(h + PDU_COMPLETION + 12);
		m->failed = le16(h + PDU_COMPLETION + 14) >> 1 != 0;
		break;
	case PDU_CONTROLLER_DATA:
		if ((h[PDU_FLAGS] & (PDU_LAST | PDU_SUCCESS)) != (PDU_LAST | PDU_SUCCESS))
			break;
		m->kind = MESSAGE_ANSWER;
		m->tag = le16(h + PDU_DATA_COMMAND);
		break;
	}
	return 0;
}

#endif
