/* The MySQL client/server protocol, as far as it tells where requests begin and end:
 * https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_PROTOCOL.html
 *
 * A packet is a length of three bytes, a sequence number and a body; a command is a packet
 * with sequence number 0. It ends with the last send before the server tries to read again.
 *
 * Packets within compressed frames, and the X protocol, are not read: their requests are counted as lost. */
#ifndef __QUERY_MYSQL_H__
#define __QUERY_MYSQL_H__

#include "../little_endian.h"
#include "clock.h"
#include "feed.h"
#include "prepared.h"
#include "sql.h"

#define MYSQL_HEADER 4

/* LOAD DATA LOCAL: what the client sends then is no command until an empty packet. */
enum file_transfer {
	NO_TRANSFER,
	TRANSFER_ASKED, /* the server asked for a file in its last answer */
	TRANSFER,       /* the client sends it */
};

/* What the bytes of a connection are. All three begin with a length and, mostly, a zero. */
enum framing {
	PACKETS,
	FRAMES,   /* compressed: length, number, length before the compression or 0 without one; packets */
	MESSAGES, /* of the X protocol: a length of four bytes, type, body */
};

struct mysql_state {
	u8 preparing;     /* command of the statement being prepared | REQUEST_HAS_STATEMENT */
	u8 file_transfer; /* enum file_transfer */
	u8 commanded;     /* the last packet, in or out, was a command, whose answer begins with packet 1 */
	u8 framing;       /* enum framing */
	u8 number;        /* of the last packet or frame that came, 0 once it was answered */
	u8 reported;      /* the last send was a report of progress, and no answer */
	u32 types;        /* where the next attribute's type is; see mysql_query() */
	u32 values;       /* and its value */
};

_Static_assert(sizeof(struct mysql_state) <= PROTOCOL_STATE_BYTES, "a connection has less space");

static __always_inline struct mysql_state *mysql(struct connection *c)
{
	return (struct mysql_state *)c->own;
}

/* Threads, of which each serves one connection after the other; those of a pool by turns. */
#define mysql_traits TRAIT_SHARES_SYNCS

static __always_inline int mysql_opened(struct followed_task *followed, struct connection *c)
{
	c->conn = CONN_READY;
	return 0;
}

enum {
	COM_QUERY = 0x03,
	COM_STMT_PREPARE = 0x16,
	COM_STMT_EXECUTE = 0x17,
	COM_STMT_CLOSE = 0x19,
	COM_STMT_FETCH = 0x1c,
	NO_COMMAND = 0x40, /* from here on MariaDB's own, and what a replica sends of its own accord */
	COM_STMT_BULK_EXECUTE = 0xfa,
};

/* Behind a compressed frame's header. */
#define FRAME_SIZE 3
#define FRAME_BODY (MYSQL_HEADER + FRAME_SIZE)

/* Whether the first command at hand on a connection is a compressed frame, by what is where a command is: 0, as its
 * packets are not compressed, which no client sends as a command; or the beginning of zlib's or zstd's data behind. */
static __always_inline bool mysql_is_frame(struct connection *c)
{
	const u8 *frame = &c->bytes[FRAME_BODY];
	if (!c->bytes[MYSQL_HEADER])
		return c->body > FRAME_SIZE;
	if (c->head_len >= FRAME_BODY + 4 && frame[0] == 0x28 && frame[1] == 0xb5 && frame[2] == 0x2f && frame[3] == 0xfd)
		return true;
	return c->head_len >= FRAME_BODY + 2 && frame[0] == 0x78 && ((frame[0] << 8) + frame[1]) % 31 == 0;
}

enum {
	X_CAPABILITIES_SET = 2, /* up to here what comes before a login and, perhaps, TLS */
	X_STATEMENTS = 12,      /* from here on statements, but for these */
	X_EXPECT = 24,
	X_EXPECT_CLOSE = 25,
	X_PREPARE = 40,
	X_DEALLOCATE = 42,
	X_CURSOR_CLOSE = 44,
};

/* Counts the request at hand as lost, unless it shows that it is no statement. */
static __always_inline void mysql_lose(struct connection *c)
{
	u8 command = c->bytes[MYSQL_HEADER];
	if (mysql(c)->framing == MESSAGES) {
		if (command >= X_STATEMENTS && command != X_EXPECT && command != X_EXPECT_CLOSE && command != X_PREPARE &&
			command != X_DEALLOCATE && command != X_CURSOR_CLOSE)
			count_loss(c->server, LOST_X_PROTOCOL);
		return;
	}
	/* The packet in a frame that is not compressed shows its command. */
	bool compressed = c->bytes[MYSQL_HEADER] || c->bytes[MYSQL_HEADER + 1] || c->bytes[MYSQL_HEADER + 2];
	command = c->bytes[FRAME_BODY + MYSQL_HEADER];
	if (compressed || command == COM_QUERY || command == COM_STMT_EXECUTE || command == COM_STMT_FETCH ||
		command == COM_STMT_BULK_EXECUTE)
		count_loss(c->server, LOST_COMPRESSED);
}

/* A statement's number as the hash that remember() takes. */
static __always_inline u32 mysql_hash(u32 id)
{
	return id * 2654435761U;
}

#define ATTRIBUTES (MYSQL_HEADER + 3) /* where those of COM_QUERY begin, behind their number and that of their sets */
#define MANY_ATTRIBUTES 0xfc          /* a number of two bytes follows: the text is behind what is parsed */

enum {
	TYPE_TINY = 1,
	TYPE_SHORT,
	TYPE_LONG,
	TYPE_FLOAT,
	TYPE_DOUBLE,
	TYPE_NULL,
	TYPE_TIMESTAMP,
	TYPE_LONGLONG,
	TYPE_INT24,
	TYPE_DATE,
	TYPE_TIME,
	TYPE_DATETIME,
	TYPE_YEAR,
};

/* Bytes of a string, or of a time, with its length before it. All that are longer than MAX_BODY are alike. */
static __always_inline u32 mysql_string(struct connection *c, u32 at)
{
	u32 length = at < MYSQL_HEADER + MAX_BODY ? c->bytes[at] : MAX_BODY;
	return 1 + (length < MAX_BODY ? length : MAX_BODY);
}

static __always_inline u32 mysql_value(struct connection *c, u8 type, u32 at)
{
	switch (type) {
	case TYPE_NULL:
		return 0;
	case TYPE_TINY:
		return 1;
	case TYPE_SHORT:
	case TYPE_YEAR:
		return 2;
	case TYPE_LONG:
	case TYPE_INT24:
	case TYPE_FLOAT:
		return 4;
	case TYPE_LONGLONG:
	case TYPE_DOUBLE:
		return 8;
	}
	return mysql_string(c, at);
}

/* Passes over an attribute's type and name; from where values are known to be on, over its value, too. */
static long mysql_attribute(u32 i, struct feed *f)
{
	struct connection *c = f->c;
	struct mysql_state *m = mysql(c);
	u32 at = m->types, null = ATTRIBUTES + i / 8;
	if (at >= MYSQL_HEADER + MAX_BODY || null >= MYSQL_HEADER + MAX_BODY)
		return 1;
	m->types = at + 2 + mysql_string(c, at + 2);
	if (m->values && !(c->bytes[null] >> (i & 7) & 1))
		m->values += mysql_value(c, c->bytes[at], m->values);
	return 0;
}

/* The command of the text at hand, which begins there. */
static __always_inline u8 mysql_text(struct connection *c, u32 at)
{
	return classify(c, at, c->head_len, (c->body > MAX_BODY ? GOES_ON : 0) | MYSQL_TEXT);
}

/* The command of a COM_QUERY. A client that has attributes for queries sends them before the text: their number, the
 * number of their sets, which is 1; and if there are any, a bit for each that is NULL, 1, all types and names, and all
 * values. No text has 1 as its second byte, but for one that begins with a comment. */
static __always_inline u8 mysql_query(struct connection *c)
{
	struct mysql_state *m = mysql(c);
	u32 n = c->bytes[MYSQL_HEADER + 1], sets = c->bytes[MYSQL_HEADER + 2], at = MYSQL_HEADER + 1;
	u32 types = ATTRIBUTES + (n + 7) / 8 + 1;
	if (sets == 1 && !n) {
		at = ATTRIBUTES;
	} else if (sets == 1 && types < c->head_len && c->bytes[types - 1] == 1) {
		struct feed f = {.c = c};
		m->values = 0;
		m->types = types;
		bpf_loop(n, mysql_attribute, &f, 0);
		m->values = m->types;
		m->types = types;
		bpf_loop(n, mysql_attribute, &f, 0);
		at = m->values;
	} else if (n == MANY_ATTRIBUTES) {
		at = c->head_len;
	}
	return mysql_text(c, at) | REQUEST_HAS_STATEMENT;
}

__noinline int mysql_command(struct connection *c, struct names *names)
{
	if (!c)
		return 0;
	c->request = 0;
	c->answered = 0;
	mysql(c)->preparing = 0;
	mysql(c)->file_transfer = NO_TRANSFER;
	mysql(c)->commanded = c->bytes[MYSQL_HEADER] < NO_COMMAND;
	c->understood = mysql(c)->framing != MESSAGES || c->bytes[MYSQL_HEADER] > X_CAPABILITIES_SET;
	if (mysql(c)->framing != PACKETS) {
		mysql_lose(c);
		return 0;
	}
	switch (c->bytes[MYSQL_HEADER]) {
	case COM_QUERY:
		c->request = mysql_query(c);
		break;
	case COM_STMT_PREPARE:
		mysql(c)->preparing = mysql_text(c, MYSQL_HEADER + 1) | REQUEST_HAS_STATEMENT;
		c->bound = mysql(c)->preparing & ~REQUEST_HAS_STATEMENT;
		break;
	case COM_STMT_EXECUTE:
	case COM_STMT_FETCH:
	case COM_STMT_BULK_EXECUTE: {
		/* MariaDB: number -1 is the statement prepared last. */
		u32 id = le32(&c->bytes[MYSQL_HEADER + 1]);
		c->request = (id == ~0U ? c->bound : recall(names, mysql_hash(id))) | REQUEST_HAS_STATEMENT;
		break;
	}
	case COM_STMT_CLOSE:
		forget_name(names, mysql_hash(le32(&c->bytes[MYSQL_HEADER + 1])));
		break;
	}
	return 0;
}

/* Whether the packet whose header is at hand is a command. The packets of a file count on from the
 * command's number, which has one byte: every 256th is 0 again; and so do frames. */
static __always_inline bool mysql_is_command(struct connection *c)
{
	return c->bytes[3] == 0 && c->body && mysql(c)->file_transfer != TRANSFER && !(mysql(c)->framing == FRAMES && mysql(c)->number == 255);
}

/* Bytes of the body at hand that are parsed. */
static __always_inline u32 mysql_parsed_length(struct connection *c)
{
	return c->body < MAX_BODY ? c->body : MAX_BODY;
}

static long mysql_step(u32 i, struct feed *f)
{
	struct connection *c = f->c;
	if (!skip_bytes(c))
		return 1;
	if (c->head_len < MYSQL_HEADER) {
		if (!gather(c, MYSQL_HEADER))
			return 1;
		c->body = (u32)c->bytes[0] | (u32)c->bytes[1] << 8 | (u32)c->bytes[2] << 16;
		if (mysql(c)->framing == FRAMES)
			c->body += FRAME_SIZE;
		c->head_want = MYSQL_HEADER + (mysql_is_command(c) ? mysql_parsed_length(c) : 0);
	}
	if (c->head_len < c->head_want && !gather(c, c->head_want))
		return 1;
	if (mysql_is_command(c)) {
		if (!c->understood && mysql(c)->framing == PACKETS && mysql_is_frame(c)) {
			mysql(c)->framing = FRAMES;
			c->body += FRAME_SIZE;
			c->head_want = MYSQL_HEADER + mysql_parsed_length(c);
			return 0;
		}
		mysql_command(c, f->names);
	} else if (mysql(c)->file_transfer == TRANSFER && !c->body)
		mysql(c)->file_transfer = NO_TRANSFER;
	mysql(c)->number = c->bytes[3];
	c->skip = MYSQL_HEADER + c->body - c->head_len;
	c->head_len = 0;
	return 0;
}

static __always_inline int mysql_received(struct followed_task *followed, struct connection *c, struct names *names, u64 buf, u32 len)
{
	struct task_struct *task = bpf_get_current_task_btf();
	/* Another thread may have seen the last one's end. */
	if (!followed->busy || c->answered) {
		c->request = 0;
		c->answered = 0;
	}
	/* A command without an answer (close statement) does not begin the next one. */
	bool boundary = !c->head_len && !c->skip && !c->request && !mysql(c)->preparing && !c->begun;
	if (!followed->busy || boundary)
		begin(followed, task, bpf_ktime_get_ns());
	c->begun = 0;
	c->start = followed->start;
	c->pid = task->pid;
	struct feed f = {.followed = followed, .c = c, .names = names};
	feed(c, buf, len);
	bpf_loop(1 << 12, mysql_step, &f, 0);
	followed->current = c->request;
	return 0;
}

#define IN_TRANSACTION 1 /* SERVER_STATUS_IN_TRANS */
#define MORE_RESULTS 8   /* SERVER_MORE_RESULTS_EXISTS */
#define ANSWER 28        /* bytes that an OK packet has at most up to its status */

/* Bytes of a length-encoded integer that begins with this one. */
static __always_inline u32 mysql_integer(u8 first)
{
	return first < 0xfb ? 1 : first == 0xfc ? 3
			  : first == 0xfd       ? 4
						: 9;
}

/* The status in an OK packet, behind rows affected and last number inserted: of BEGIN, COMMIT, ROLLBACK
 * and every change. */
static __always_inline u8 mysql_status(const u8 *answer)
{
	u32 at = MYSQL_HEADER + 1;
	at += mysql_integer(answer[at]);
	if (at >= ANSWER)
		return 0;
	at += mysql_integer(answer[at]);
	return at < ANSWER ? answer[at] : 0;
}

#define FILE_ASKED 0xfb
#define FAILED 0xff
#define END_OF_ROWS 0xfe
#define MAX_FILE_NAME 4096

/* Whether what was sent ends with the packet that ends rows: warnings and status; or, with newer clients,
 * an OK packet, which has them the other way round. */
static __always_inline bool mysql_ends_rows(u64 buf, u32 len)
{
	u8 end[11];
	if (len < sizeof(end) || bpf_probe_read_user(end, sizeof(end), (void *)(buf + len - sizeof(end))))
		return false;
	if (end[2] == 5 && !end[3] && !end[4] && end[6] == END_OF_ROWS)
		return !(end[9] & MORE_RESULTS);
	return end[0] == 7 && !end[1] && !end[2] && end[4] == END_OF_ROWS && !end[5] && !end[6] && !(end[7] & MORE_RESULTS);
}

static __always_inline int mysql_wrote(struct followed_task *followed, struct connection *c, struct sock *sk, u64 buf, u32 len)
{
	u8 answer[ANSWER];
	followed->complete = 0;
	mysql(c)->reported = 0;
	if (!followed->busy || len < MYSQL_HEADER + 1 || bpf_probe_read_user(answer, sizeof(answer), (void *)buf))
		return 0;
	bool first = !followed->sent;
	mysql(c)->number = 0;
	if (mysql(c)->framing == FRAMES)
		return 0;
	/* The X protocol's messages have no number and look like commands; the answers show it. */
	if (mysql(c)->commanded && (mysql(c)->framing == MESSAGES) != !answer[3]) {
		mysql(c)->framing = answer[3] ? PACKETS : MESSAGES;
		if (!answer[3]) {
			mysql_lose(c);
			c->understood = c->bytes[MYSQL_HEADER] > X_CAPABILITIES_SET;
			c->request = 0;
			followed->current = 0;
		}
	}
	mysql(c)->commanded = 0;
	if (mysql(c)->framing == MESSAGES)
		return 0;
	u32 body = (u32)answer[0] | (u32)answer[1] << 8 | (u32)answer[2] << 16;
	bool alone = body + MYSQL_HEADER == len;
	u8 kind = answer[MYSQL_HEADER];
	/* MariaDB reports progress as an error with number 65535. */
	if (alone && kind == FAILED && answer[MYSQL_HEADER + 1] == 0xff && answer[MYSQL_HEADER + 2] == 0xff) {
		mysql(c)->reported = 1;
		return 0;
	}
	/* Several statements in one command may end with one that asks for a file. A row that begins with
	 * NULL has the same first byte, but is not sent alone unless it is larger than the server's buffer. */
	if (kind == FILE_ASKED && (first || (alone && len <= MAX_FILE_NAME)))
		mysql(c)->file_transfer = TRANSFER_ASKED;
	if (kind == 0 && alone && c->request & REQUEST_HAS_STATEMENT) {
		u8 status = mysql_status(answer);
		followed->complete = !(status & MORE_RESULTS);
		if (first)
			followed->in_transaction = status & IN_TRANSACTION;
	} else {
		followed->complete = (alone && kind == FAILED) || mysql_ends_rows(buf, len);
	}
	if (first && mysql(c)->preparing && kind == 0 && len >= 12) {
		u32 id = (u32)answer[5] | (u32)answer[6] << 8 | (u32)answer[7] << 16 | (u32)answer[8] << 24;
		remember(names_of(sk, BPF_LOCAL_STORAGE_GET_F_CREATE), mysql_hash(id), mysql(c)->preparing);
		mysql(c)->preparing = 0;
		c->named = 1;
	}
	return 0;
}

/* Perhaps the end of the answer. */
static __always_inline int mysql_sent(struct followed_task *followed, struct connection *c, struct task_struct *task)
{
	if (mysql(c)->reported)
		return 0;
	c->answered = 1;
	if (!followed->busy)
		return 0;
	u64 now = bpf_ktime_get_ns();
	advance(followed, task, now);
	followed->sent_at = now;
	__builtin_memcpy(followed->sent_phase, followed->phase, sizeof(followed->phase));
	followed->sent = 1;
	return 0;
}

/* The statement under way ended with the last send. */
static __always_inline void mysql_end(struct followed_task *followed, struct task_struct *task)
{
	if (followed->current & REQUEST_HAS_STATEMENT)
		observe(followed, task, followed->current, followed->sent_at, true);
	followed->current = 0;
	followed->busy = 0;
	followed->slept = 0;
}

/* The server tries to read: the request is over if it was answered. */
static __always_inline int mysql_reads(struct followed_task *followed, struct connection *c, struct task_struct *task)
{
	if (!followed->busy)
		return 0;
	if (mysql(c)->file_transfer == TRANSFER_ASKED) {
		/* The client sends a file now, and the answer comes after it. */
		mysql(c)->file_transfer = TRANSFER;
		c->answered = 0;
		followed->sent = 0;
		return 0;
	}
	if (!followed->sent)
		return 0;
	/* An answer ends what came before it, whatever was missed of that. */
	mysql(c)->file_transfer = NO_TRANSFER;
	c->request = 0;
	mysql_end(followed, task);
	return 0;
}

static __always_inline int mysql_drained(struct followed_task *followed, struct connection *c)
{
	return 0;
}

/* The thread turns to another connection than its last one, or sends on one that another thread has read
 * from: a pool lets a commit wait without a thread, and any of them answers it. */
static __always_inline int mysql_turns(struct followed_task *followed, struct connection *c, struct task_struct *task, bool sends)
{
	u64 now = bpf_ktime_get_ns();
	if (followed->busy) {
		bool gone = is_gone(followed);
		if (followed->sent && (followed->complete || !gone))
			mysql_end(followed, task);
		else if (gone)
			abandon(followed, task, now);
		else if (followed->tls && followed->current & REQUEST_HAS_STATEMENT)
			count_loss(followed->server, LOST_ENCRYPTED); /* who answers it cannot know what it is */
		followed->busy = 0;
		followed->sent = 0;
	}
	if (sends && c->request & REQUEST_HAS_STATEMENT && !c->answered && c->start)
		take_over(followed, c, task, now);
	return 0;
}

static __always_inline u32 mysql_waits(struct followed_task *followed, long nr)
{
	return PHASE_WAIT;
}

/* A thread whose client is gone, or that has answered and does not read (in a pool), has nothing under way. */
static __always_inline bool mysql_rests(struct followed_task *followed, struct task_struct *task, long nr, u64 now)
{
	if (followed->sent && followed->complete) {
		mysql_end(followed, task);
		return true;
	}
	if (!is_gone(followed))
		return false;
	abandon(followed, task, now);
	followed->busy = 0;
	return true;
}

#endif
