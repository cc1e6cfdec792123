/* The dataconn wire of Longhorn's V1 engine and of OpenEBS Jiva, which forked from it.
 * Little endian, packed:
 *
 *   magic u16, seq u32, type u32, offset u64, size (u32 or u64), payload length u32, payload
 *
 * Longhorn and Jiva to 0.6 send magic 0x1b01, Jiva 0.7 0x1b02, both with a 32-bit size (26 bytes);
 * Jiva from 0.8 on sends 0x1b03 and a 64-bit size (30 bytes). Sources: longhorn-engine
 * pkg/dataconn/{wire,types}.go at v1.8.0; openebs/jiva rpc/{wire,types,client,server}.go at 0.6.0,
 * 0.7.2, 0.8.0 and v3.6.0.
 * The user-space counterpart is the Go package exporters/agent/dataconn: change both.
 */
#ifndef __PLUMBLINE_DATACONN_H__
#define __PLUMBLINE_DATACONN_H__

#include "../little_endian.h"
#include "wire.h"

#define WIRE_HEADER_MAX 30
#define DATACONN_HEADER_SHORT 26

#define DATACONN_LONGHORN 0x1b01
#define DATACONN_JIVA 0x1b03

/* Larger than any request the frontends make (1 MiB by tgt, sync sends 2 MiB). A longer
 * one is taken for garbage, which bounds how far a wrong header can lead astray. */
#define DATACONN_PAYLOAD_MAX (64 << 20)

enum dataconn_type {
	DATACONN_READ = 0,
	DATACONN_WRITE = 1,
	DATACONN_RESPONSE = 2,
	DATACONN_ERROR = 3,
	DATACONN_EOF = 4,
	DATACONN_CLOSE = 5,
	DATACONN_PING = 6,
	DATACONN_UNMAP = 7,   /* Jiva: update, never sent */
	DATACONN_EXTRA_8 = 8, /* Longhorn: no space left (a response); Jiva: sync */
	DATACONN_JIVA_UNMAP = 9,
};

static __always_inline bool wire_begins(const u8 *h, u32 have)
{
	return h[0] >= 0x01 && h[0] <= 0x03 && (have < 2 || h[1] == 0x1b);
}

static __always_inline u32 wire_need(const u8 *h, u32 have)
{
	return have >= 2 && h[0] == 0x03 && h[1] == 0x1b ? WIRE_HEADER_MAX : DATACONN_HEADER_SHORT;
}

static __always_inline int wire_parse(const u8 *h, struct wire_message *m)
{
	u32 magic = h[0] | h[1] << 8;
	u32 type = le32(h + 6);
	u64 size = magic == DATACONN_JIVA ? le64(h + 18) : le32(h + 18);
	u32 payload = le32(magic == DATACONN_JIVA ? h + 26 : h + 22);

	m->id = le32(h + 2);
	m->offset = le64(h + 10);
	m->size = size;
	m->payload = payload;
	m->kind = WIRE_REQUEST;
	m->op = OP_OTHER;
	m->failed = 0;
	m->dialect = h[0];
	/* A server's farewell carries no magic number: all zeros but for its type. */
	if (magic == 0) {
		m->kind = WIRE_OTHER;
		return type == DATACONN_CLOSE && !m->id && !m->offset && !size && !payload ? 0 : -1;
	}
	if (magic < DATACONN_LONGHORN || magic > DATACONN_JIVA)
		return -1;
	if (payload > DATACONN_PAYLOAD_MAX || size > 0xffffffff || m->offset >> 62)
		return -1;
	if (magic == DATACONN_JIVA && type == DATACONN_JIVA_UNMAP)
		type = DATACONN_UNMAP;
	switch (type) {
	case DATACONN_READ:
		m->op = OP_READ;
		return payload || size > DATACONN_PAYLOAD_MAX ? -1 : 0;
	case DATACONN_WRITE:
		m->op = OP_WRITE;
		return payload == size ? 0 : -1;
	case DATACONN_UNMAP:
		m->op = OP_UNMAP;
		return payload ? -1 : 0;
	case DATACONN_PING:
		m->op = OP_PING;
		return payload || size ? -1 : 0;
	case DATACONN_ERROR:
		m->failed = 1;
		m->kind = WIRE_RESPONSE;
		return payload == size ? 0 : -1;
	case DATACONN_EXTRA_8:
		if (magic == DATACONN_JIVA) {
			m->op = OP_SYNC;
			return payload || size ? -1 : 0;
		}
		m->failed = 1;
		m->kind = WIRE_RESPONSE;
		return 0;
	case DATACONN_RESPONSE:
	case DATACONN_EOF:
		/* To a write or unmap: the size done and no payload. To a read: the data. */
		m->kind = WIRE_RESPONSE;
		return !payload || payload == size ? 0 : -1;
	case DATACONN_CLOSE:
		m->kind = WIRE_OTHER;
		return payload ? -1 : 0;
	}
	return -1;
}

/* Sequence numbers wrap around. */
static __always_inline bool wire_before(u64 a, u64 b)
{
	return (s32)((u32)a - (u32)b) < 0;
}

#endif
