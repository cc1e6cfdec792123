/* What SCSI commands request. They have the layout of the SCSI standards (operation codes: SPC-6 and SBC-5,
 * summarised in SPC-6 annex E), so they need no kernel type.
 */
#ifndef __PLUMBLINE_CDB_H__
#define __PLUMBLINE_CDB_H__

#include "../operation.h"

enum scsi_opcode {
	SCSI_REQUEST_SENSE = 0x03,
	SCSI_READ_6 = 0x08,
	SCSI_WRITE_6 = 0x0a,
	SCSI_INQUIRY = 0x12,
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
	SCSI_REPORT_LUNS = 0xa0,
	SCSI_READ_12 = 0xa8,
	SCSI_WRITE_12 = 0xaa,
	SCSI_WRITE_VERIFY_12 = 0xae,
};

/* WRITE SAME with this bit of its second byte unmaps. */
#define SCSI_WRITE_SAME_UNMAPS 0x08

/* The last byte of its service action identifies a command of variable length. */
#define SCSI_SERVICE_ACTION 9
enum scsi_service_action {
	SCSI_READ_32 = 0x09,
	SCSI_WRITE_32 = 0x0b,
	SCSI_WRITE_VERIFY_32 = 0x0c,
};

/* What a command descriptor block requests, given its first bytes. */
static __always_inline u8 op_of_block(const u8 *b)
{
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
