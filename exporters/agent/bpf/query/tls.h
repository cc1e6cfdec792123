/* Encrypted connections: the socket still shows when bytes come and go, and probes on the
 * TLS library (OpenSSL's SSL_read and SSL_write) show what they were. Connections without
 * encryption do not run into these probes.
 *
 * A library that is probed twice, because two containers show one file under two names, is
 * harmless: the second hit finds nothing left to do. */
#ifndef __QUERY_TLS_H__
#define __QUERY_TLS_H__

#include "../arch.h"
#include "state.h"

#define TLS_HANDSHAKE 0x16
#define TLS_DATA 0x17
#define TLS_MAJOR 3
#define TLS_RECORD_HEADER 5

/* The type of the TLS record that begins at buf, or 0. */
static __always_inline u8 tls_record(u64 buf, u32 len)
{
	u8 header[TLS_RECORD_HEADER];
	if (len < sizeof(header) || bpf_probe_read_user(header, sizeof(header), (void *)buf))
		return 0;
	if (header[1] != TLS_MAJOR || header[2] > 4)
		return 0;
	return header[0] == TLS_HANDSHAKE || header[0] == TLS_DATA ? header[0] : 0;
}

/* A read through the library returned plain text. Whether its SSL object is the client's shows
 * at the first one: encrypted bytes came on the client's socket then. Other objects belong to
 * connections that the server itself makes. */
static __always_inline bool is_clients(struct followed_task *followed)
{
	if (!followed->tls_session && followed->tls)
		followed->tls_session = followed->tls_reader;
	return followed->tls_session && followed->tls_session == followed->tls_reader;
}

#endif
