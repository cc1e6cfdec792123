/* The interface between a storage wire's parser and the tracking of its connections (track.h).
 * A wire is one header file that includes this one and defines
 *
 *   WIRE_HEADER_MAX                     the longest header, in bytes, at most WIRE_HEADER_CAPACITY / 2 - 1
 *   bool wire_begins(header, have)      can these first bytes (1 or more) begin a message on a
 *                                       stream that is not in step yet?
 *   u32 wire_need(header, have)         how long the header is, as far as `have` bytes show; more
 *                                       than `have` until the header is complete
 *   int wire_parse(header, message)     0, or -1 if a complete header is not one of this wire
 *   bool wire_before(a, b)              was request a sent before request b on one connection?
 *
 * A wire's program file includes its header, track.h and the hooks that see its bytes
 * (sockets.h for programs that read and write stream sockets). The tracker knows no wire's
 * format.
 */
#ifndef __PLUMBLINE_WIRE_H__
#define __PLUMBLINE_WIRE_H__

#include "../operation.h"

/* A power of two, so that the verifier can bound header + have + n by masks. */
#define WIRE_HEADER_CAPACITY 64

enum wire_kind {
	WIRE_REQUEST,
	WIRE_RESPONSE,
	WIRE_OTHER, /* neither opens nor closes an operation */
};

/* One message, as far as tracking needs to know it. */
struct wire_message {
	u64 id;      /* ties a response to its request on the same connection */
	u64 offset;  /* in the volume, bytes */
	u32 size;    /* bytes the operation is about */
	u32 payload; /* bytes that follow the header */
	u8 kind;     /* enum wire_kind */
	u8 op;       /* enum wire_op, of a request */
	u8 failed;   /* a response that reports an error */
	u8 dialect;  /* the wire's version: a stream keeps to its first one; 0 if the message does not have it */
};

#endif
