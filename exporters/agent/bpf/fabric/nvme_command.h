/* What NVMe commands request. They have the layout of the NVMe base specification (2.0, figures 86 and 87; the NVM
 * command set's opcodes: NVM command set specification 1.0, figure 22), so they need no kernel type.
 */
#ifndef __PLUMBLINE_NVME_COMMAND_H__
#define __PLUMBLINE_NVME_COMMAND_H__

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
