/* The MySQL client/server protocol, as far as it tells where requests begin and end:
 * https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html
 *
 * A packet is a length of three bytes, a sequence number and a body; a command is a packet
 * with sequence number 0. It ends with the last send before the server tries to read again. */
#ifndef __QUERY_MYSQL_H__
#define __QUERY_MYSQL_H__

#include "clock.h"
#include "feed.h"
#include "prepared.h"
#include "sql.h"

#define MYSQL_HEADER 4

enum {
	COM_QUERY = 0x03,
	COM_STMT_PREPARE = 0x16,
	COM_STMT_EXECUTE = 0x17,
	COM_STMT_CLOSE = 0x19,
	COM_STMT_FETCH = 0x1c,
	COM_STMT_BULK_EXECUTE = 0xfa,
};

/* A statement's number as the hash that remember() takes. */
static __always_inline u32 mysql_hash(u32 id)
{
	return id * 2654435761U;
}

static __always_inline u32 le32_at(struct backend *b, u32 pos)
{
	return (u32)b->bytes[pos] | (u32)b->bytes[pos + 1] << 8 | (u32)b->bytes[pos + 2] << 16 |
	       (u32)b->bytes[pos + 3] << 24;
}

__noinline int mysql_command(struct backend *b)
{
	if (!b)
		return 0;
	b->request = 0;
	b->preparing = 0;
	b->file_transfer = NO_TRANSFER;
	b->commanded = 1;
	switch (b->bytes[MYSQL_HEADER]) {
	case COM_QUERY:
		b->request = classify(b, MYSQL_HEADER + 1, b->head_len) | HAS_STATEMENT;
		break;
	case COM_STMT_PREPARE:
		b->preparing = classify(b, MYSQL_HEADER + 1, b->head_len) | HAS_STATEMENT;
		b->bound = b->preparing & COMMAND_BITS;
		break;
	case COM_STMT_EXECUTE:
	case COM_STMT_FETCH:
	case COM_STMT_BULK_EXECUTE: {
		/* MariaDB: number -1 is the statement prepared last. */
		u32 id = le32_at(b, MYSQL_HEADER + 1);
		b->request = (id == ~0U ? b->bound : recall(mysql_hash(id))) | HAS_STATEMENT;
		break;
	}
	case COM_STMT_CLOSE:
		forget_name(mysql_hash(le32_at(b, MYSQL_HEADER + 1)));
		break;
	}
	return 0;
}

/* Whether the packet whose header is at hand is a command. The packets of a file count on from the
 * command's number, which has one byte: every 256th is 0 again. */
static __always_inline bool mysql_is_command(struct backend *b)
{
	return b->bytes[3] == 0 && b->body && b->file_transfer != TRANSFER;
}

static long mysql_step(u32 i, struct feed *f)
{
	struct backend *b = f->b;
	if (!skip_bytes(b))
		return 1;
	if (b->head_len < MYSQL_HEADER) {
		if (!gather(b, MYSQL_HEADER))
			return 1;
		b->body = (u32)b->bytes[0] | (u32)b->bytes[1] << 8 | (u32)b->bytes[2] << 16;
		b->head_want = MYSQL_HEADER;
		if (mysql_is_command(b))
			b->head_want += b->body < BODY ? b->body : BODY;
	}
	if (b->head_len < b->head_want && !gather(b, b->head_want))
		return 1;
	if (mysql_is_command(b))
		mysql_command(b);
	else if (b->file_transfer == TRANSFER && !b->body)
		b->file_transfer = NO_TRANSFER;
	b->skip = MYSQL_HEADER + b->body - b->head_len;
	b->head_len = 0;
	return 0;
}

static __always_inline void mysql_received(struct backend *b, u64 buf, u32 len)
{
	struct feed f = { .b = b };
	feed(b, buf, len);
	bpf_loop(1 << 12, mysql_step, &f, 0);
}

#define IN_TRANSACTION 1 /* SERVER_STATUS_IN_TRANS */

/* Bytes of a length-encoded integer that begins with this one. */
static __always_inline u32 mysql_integer(u8 first)
{
	return first < 0xfb ? 1 : first == 0xfc ? 3 : first == 0xfd ? 4 : 9;
}

/* An OK packet: rows affected, last number inserted, status. BEGIN, COMMIT, ROLLBACK and every
 * change are answered by one; a status beyond the bytes at hand leaves what is known. */
static __always_inline void mysql_ok(struct backend *b, const u8 *answer, u32 len)
{
	u32 at = MYSQL_HEADER + 1;
	at += mysql_integer(answer[at]);
	if (at >= 12 || at >= len)
		return;
	at += mysql_integer(answer[at]);
	if (at >= 12 || at >= len)
		return;
	b->in_transaction = answer[at] & IN_TRANSACTION;
}

#define FILE_ASKED 0xfb
#define MAX_FILE_NAME 4096

/* A later part of an answer: several statements in one command may end with one that asks for a
 * file. A row that begins with NULL has the same first byte, but is not sent alone unless it is
 * larger than the server's buffer. */
static __always_inline void mysql_more_answer(struct backend *b, u64 buf, u32 len)
{
	u8 answer[MYSQL_HEADER + 1];
	if (len < sizeof(answer) || len > MAX_FILE_NAME || bpf_probe_read_user(answer, sizeof(answer), (void *)buf))
		return;
	u32 body = (u32)answer[0] | (u32)answer[1] << 8 | (u32)answer[2] << 16;
	if (body + MYSQL_HEADER == len && answer[MYSQL_HEADER] == FILE_ASKED)
		b->file_transfer = TRANSFER_ASKED;
}

/* The first bytes of an answer. */
static __always_inline void mysql_answer(struct backend *b, u64 buf, u32 len)
{
	u8 answer[12];
	if (len < MYSQL_HEADER + 1 || bpf_probe_read_user(answer, sizeof(answer), (void *)buf))
		return;
	if (answer[MYSQL_HEADER] == FILE_ASKED)
		b->file_transfer = TRANSFER_ASKED;
	if (answer[MYSQL_HEADER] == 0 && b->request & HAS_STATEMENT)
		mysql_ok(b, answer, len < sizeof(answer) ? len : sizeof(answer));
	if (b->preparing && answer[MYSQL_HEADER] == 0 && len >= sizeof(answer)) {
		u32 id = (u32)answer[5] | (u32)answer[6] << 8 | (u32)answer[7] << 16 | (u32)answer[8] << 24;
		remember(mysql_hash(id), b->preparing & COMMAND_BITS);
		b->preparing = 0;
	}
}

/* The server sent bytes: perhaps the end of the answer. */
static __always_inline void mysql_sent(struct backend *b, struct task_struct *task, u64 now)
{
	advance(b, task, now);
	b->sent_at = now;
	__builtin_memcpy(b->sent_phase, b->phase, sizeof(b->phase));
	b->sent = 1;
}

/* The server tries to read: the request is over if it was answered. */
static __always_inline void mysql_reads(struct backend *b, struct task_struct *task)
{
	if (!b->busy)
		return;
	if (b->file_transfer == TRANSFER_ASKED) {
		/* The client sends a file now, and the answer comes after it. */
		b->file_transfer = TRANSFER;
		b->sent = 0;
		return;
	}
	if (!b->sent)
		return;
	/* An answer ends what came before it, whatever was missed of that. */
	b->file_transfer = NO_TRANSFER;
	if (b->request & HAS_STATEMENT)
		observe(b, task, b->request, b->sent_at, true);
	b->request = 0;
	b->busy = 0;
	b->slept = 0;
}

#endif
