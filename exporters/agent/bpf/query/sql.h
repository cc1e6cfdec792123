/* The command of a statement, from its first word, and the second one of BEGIN and START. Nothing else of the text is
 * parsed and nothing of it leaves the kernel. */
#ifndef __QUERY_SQL_H__
#define __QUERY_SQL_H__

#include "feed.h"

enum sql_command {
	SELECT = OTHER + 1,
	INSERT,
	UPDATE,
	DELETE,
	BEGIN,
	COMMIT,
	ROLLBACK,
	COPY,
	SQL_COMMANDS,
};

/* Keeps the type in the object file, from where the agent takes the numbers. */
const enum sql_command *unused_sql_command __attribute__((unused));

_Static_assert(SQL_COMMANDS <= COMMANDS, "the statistics have space for fewer commands");

enum scan {
	SCAN_SPACE,
	SCAN_DASH,    /* after - */
	SCAN_LINE,    /* in a comment up to the end of the line */
	SCAN_SLASH,   /* after / */
	SCAN_OPEN,    /* after the beginning of a comment */
	SCAN_M,       /* and M, of a comment for MariaDB */
	SCAN_BLOCK,   /* in a comment */
	SCAN_STAR,    /* in a comment, after * */
	SCAN_NESTED,  /* in a comment, after /, where they nest */
	SCAN_VERSION, /* in the number behind the beginning of a comment that is executed */
	SCAN_WORD,
	SCAN_CUT, /* at the end of what is parsed, before the word's */
};

/* What classify() must know of a text. */
enum text {
	GOES_ON = 1,    /* it is longer than what is parsed */
	MYSQL_TEXT = 2, /* it is MySQL's or MariaDB's */
};

struct scanner {
	struct connection *c;
	u32 from, end, text;
};

/* Versions for which a comment is never executed, by MySQL's and MariaDB's convention. */
#define NEVER_5 99999
#define NEVER_6 999999

static long scan_byte(u32 i, struct scanner *s)
{
	struct connection *conn = s->c;
	u32 pos = s->from + i;
	if (pos >= s->end || pos >= 2 * STAGE_OFFSET) {
		conn->scan_state = SCAN_CUT;
		return 1;
	}
	u8 c = conn->bytes[pos];
	if (conn->scan_state == SCAN_VERSION) {
		if (c >= '0' && c <= '9') {
			conn->scan_word = conn->scan_word * 10 + (c - '0');
			return 0;
		}
		conn->scan_state = conn->scan_word == NEVER_5 || conn->scan_word == NEVER_6 ? SCAN_BLOCK : SCAN_SPACE;
		conn->scan_word = 0;
	}
	switch (conn->scan_state) {
	case SCAN_SPACE:
		if ((c && c <= ' ') || c == '(' || c == ';')
			return 0;
		if (c == '*') { /* the end of a comment that is executed */
			conn->scan_state = SCAN_STAR;
			return 0;
		}
		if (c == '-') {
			conn->scan_state = SCAN_DASH;
			return 0;
		}
		if (c == '/') {
			conn->scan_state = SCAN_SLASH;
			return 0;
		}
		if (c == '#') {
			conn->scan_state = SCAN_LINE;
			return 0;
		}
		conn->scan_state = SCAN_WORD;
		break;
	case SCAN_DASH:
		conn->scan_state = SCAN_LINE;
		return c != '-';
	case SCAN_LINE:
		if (c == '\n')
			conn->scan_state = SCAN_SPACE;
		return 0;
	case SCAN_SLASH:
		conn->scan_state = SCAN_OPEN;
		return c != '*';
	case SCAN_OPEN:
	case SCAN_M:
		if (s->text & MYSQL_TEXT && c == '!') {
			conn->scan_state = SCAN_VERSION;
			return 0;
		}
		if (c == 'M' && conn->scan_state == SCAN_OPEN) {
			conn->scan_state = SCAN_M;
			return 0;
		}
		conn->scan_state = SCAN_BLOCK;
	case SCAN_BLOCK:
		if (c == '*')
			conn->scan_state = SCAN_STAR;
		else if (c == '/' && !(s->text & MYSQL_TEXT))
			conn->scan_state = SCAN_NESTED;
		return 0;
	case SCAN_NESTED:
		conn->scan_depth += c == '*';
		if (c != '/')
			conn->scan_state = SCAN_BLOCK;
		return 0;
	case SCAN_STAR:
		if (c == '/') {
			conn->scan_state = conn->scan_depth ? SCAN_BLOCK : SCAN_SPACE;
			conn->scan_depth -= conn->scan_depth > 0;
		} else if (c != '*') {
			conn->scan_state = SCAN_BLOCK;
		}
		return 0;
	}
	c |= 0x20;
	if (((c < 'a' || c > 'z') && c != UNDERSCORE) || conn->scan_letters >= 8)
		return 1;
	conn->scan_word |= (u64)c << ((conn->scan_letters & 7) * 8);
	conn->scan_letters++;
	return 0;
}

static __always_inline bool is_letter(u8 c)
{
	c |= 0x20;
	return c >= 'a' && c <= 'z';
}

/* The usual case at the price of one load: the text begins with a known word. -1 if not. */
static __always_inline int classify_fast(struct connection *c, u32 pos, u32 end)
{
	if (pos + 8 >= end)
		return -1;
	u64 text = eight_bytes(c, pos);
	text |= LOWER;
	u8 after = text >> 48;
	if (!is_letter(after)) {
		switch (text & LETTERS(6)) {
		case WORD('s', 'e', 'l', 'e', 'c', 't', 0, 0):
			return SELECT;
		case WORD('i', 'n', 's', 'e', 'r', 't', 0, 0):
			return INSERT;
		case WORD('u', 'p', 'd', 'a', 't', 'e', 0, 0):
			return UPDATE;
		case WORD('d', 'e', 'l', 'e', 't', 'e', 0, 0):
			return DELETE;
		case WORD('c', 'o', 'm', 'm', 'i', 't', 0, 0):
			return COMMIT;
		}
	}
	return -1;
}

/* Not a statement but a command of PostgreSQL's replication protocol that sends for hours or for
 * ever: it would make every mean of statements meaningless. Where such a text cannot be that, it is OTHER, which
 * is what a request's byte keeps of it. */
#define REPLICATION (1 << 8 | OTHER)

/* Reads the next word into c->scan_word. */
static __always_inline void scan_next(struct scanner *s)
{
	struct connection *c = s->c;
	c->scan_state = SCAN_SPACE;
	c->scan_letters = 0;
	c->scan_depth = 0;
	c->scan_word = 0;
	u32 steps = bpf_loop(MAX_BODY + MAX_HEADER, scan_byte, s, 0);
	s->from += steps - 1; /* at the byte behind the word */
}

/* Command of the text in c->bytes[pos:end], or REPLICATION; OTHER | REQUEST_UNKNOWN if it goes on there and its first
 * word does not end before; SELECT | REQUEST_UNKNOWN of PostgreSQL's WITH, whose answer shows more. text has enum
 * text's bits. */
__noinline u32 classify(struct connection *c, u32 pos, u32 end, u32 text)
{
	if (!c)
		return OTHER;
	int known = classify_fast(c, pos, end);
	if (known >= 0)
		return known;
	struct scanner s = {.c = c, .from = pos, .end = end, .text = text};
	scan_next(&s);
	u64 first = c->scan_word;
	bool begins = first == WORD('b', 'e', 'g', 'i', 'n', 0, 0, 0), starts = first == WORD('s', 't', 'a', 'r', 't', 0, 0, 0);
	if (text & MYSQL_TEXT && (begins || starts)) {
		/* BEGIN NOT ATOMIC is a block of statements; what else starts are replicas. */
		scan_next(&s);
		bool other = begins ? c->scan_word == WORD('n', 'o', 't', 0, 0, 0, 0, 0)
				    : c->scan_word != WORD('t', 'r', 'a', 'n', 's', 'a', 'c', 't');
		return other ? OTHER : BEGIN;
	}
	switch (first) {
	case WORD('w', 'i', 't', 'h', 0, 0, 0, 0):
		return text & MYSQL_TEXT ? SELECT : SELECT | REQUEST_UNKNOWN;
	case WORD('s', 'e', 'l', 'e', 'c', 't', 0, 0):
	case WORD('v', 'a', 'l', 'u', 'e', 's', 0, 0):
	case WORD('t', 'a', 'b', 'l', 'e', 0, 0, 0):
		return SELECT;
	case WORD('i', 'n', 's', 'e', 'r', 't', 0, 0):
	case WORD('r', 'e', 'p', 'l', 'a', 'c', 'e', 0):
		return INSERT;
	case WORD('u', 'p', 'd', 'a', 't', 'e', 0, 0):
		return UPDATE;
	case WORD('d', 'e', 'l', 'e', 't', 'e', 0, 0):
		return DELETE;
	case WORD('b', 'e', 'g', 'i', 'n', 0, 0, 0):
	case WORD('s', 't', 'a', 'r', 't', 0, 0, 0):
		return BEGIN;
	case WORD('c', 'o', 'm', 'm', 'i', 't', 0, 0):
	case WORD('e', 'n', 'd', 0, 0, 0, 0, 0):
		return COMMIT;
	case WORD('r', 'o', 'l', 'l', 'b', 'a', 'c', 'k'):
	case WORD('a', 'b', 'o', 'r', 't', 0, 0, 0):
		return ROLLBACK;
	case WORD('c', 'o', 'p', 'y', 0, 0, 0, 0):
	case WORD('l', 'o', 'a', 'd', 0, 0, 0, 0):
		return COPY;
	case WORD('s', 't', 'a', 'r', 't', UNDERSCORE, 'r', 'e'): /* START_REPLICATION */
	case WORD('b', 'a', 's', 'e', UNDERSCORE, 'b', 'a', 'c'): /* BASE_BACKUP */
		return REPLICATION;
	}
	return text & GOES_ON && c->scan_state == SCAN_CUT ? OTHER | REQUEST_UNKNOWN : OTHER;
}

/* A request that consists of a statement with this command. */
static __always_inline u8 request_of(u32 command)
{
	return command == REPLICATION ? 0 : command | REQUEST_HAS_STATEMENT;
}

#endif
