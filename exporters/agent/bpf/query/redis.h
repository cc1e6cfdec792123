/* RESP, the protocol of Redis and Valkey, as far as it shows where commands begin and end:
 * https://redis.io/docs/latest/develop/reference/protocol-spec/
 *
 * A request is an array of strings, the first one the command's name, or a line (inline). One thread
 * serves all clients by turns: it reads from those that have sent, runs what it read at once, writes and syncs
 * its log, and then sends all answers. So a command ends with the first send to its client after it was read,
 * and the commands that were read from a client together share that time, each its part.
 *
 * Of what clients wait for while the server waits for something (BLPOP), only the turn that answers is work. */
#ifndef __QUERY_REDIS_H__
#define __QUERY_REDIS_H__

#include "clock.h"
#include "feed.h"

/* As Redis itself groups them (ACL CAT). */
enum redis_command {
	REDIS_READ = OTHER + 1,
	REDIS_WRITE,
	REDIS_BLOCKING,
	REDIS_TRANSACTION,
	REDIS_SCRIPTING,
	REDIS_PUBSUB,
	REDIS_CONNECTION,
	REDIS_ADMIN,
	REDIS_COMMANDS,
};

/* Keeps the type in the object file, from where the agent takes the numbers. */
const enum redis_command *unused_redis_command __attribute__((unused));

_Static_assert(REDIS_COMMANDS <= COMMANDS, "the statistics have space for fewer commands");

/* Where the parser stands. */
enum redis_parse_state {
	REDIS_START,     /* before a request */
	REDIS_COUNT,     /* in the number of an array's strings */
	REDIS_COUNT_END, /* before the last byte of that line */
	REDIS_STRING,    /* before a string */
	REDIS_LENGTH,    /* in its length */
	REDIS_LENGTH_END,
	REDIS_NAME,   /* in the first string */
	REDIS_DATA,   /* in a string that is passed over, its line's end included */
	REDIS_INLINE, /* in a line */
};

struct redis_state {
	u64 turn;           /* followed->start of the turn when the commands were read */
	u64 from;           /* when they were */
	u64 before[PHASES]; /* and phase[] then */
	u64 number;         /* in the line at hand */
	u64 strings;        /* that are left of the array */
	u64 word;           /* first letters of the command's name, made small */
	u32 length;         /* and how many it has */
	u32 left;           /* of them to come */
	u32 total;          /* commands without an answer */
	u32 commands[COMMANDS];
	u8 parse_state; /* enum redis_parse_state */
	u8 digits;
	u8 negative;
	u8 first;     /* the array's next string is the command's name */
	u8 word_over; /* inline: the first word is over */
	u8 opener;    /* group of the first command without an answer */
	u8 replica;   /* what follows is the stream to a replica */
	u8 pushed;    /* what is sent is push messages alone, which answer nothing */
	u64 out;      /* user address of what is sent and not yet parsed */
	u64 out_end;
	u64 elements; /* of the push message at hand, to come */
};

_Static_assert(sizeof(struct redis_state) <= PROTOCOL_STATE_BYTES, "a connection has less space");

static __always_inline struct redis_state *redis(struct connection *c)
{
	return (struct redis_state *)c->own;
}

/* Threads; one serves all connections. */
#define redis_traits TRAIT_SERVES_MANY

static __always_inline int redis_opened(struct followed_task *followed, struct connection *c)
{
	c->conn = CONN_READY;
	return 0;
}

/* The group of a command, by its first eight letters and, where these are not enough, its length. Commands
 * of modules are in none. */
static __noinline u32 redis_group(u64 word, u32 length)
{
	switch (word) {
	case WORD('g', 'e', 't', 0, 0, 0, 0, 0):
	case WORD('m', 'g', 'e', 't', 0, 0, 0, 0):
	case WORD('e', 'x', 'i', 's', 't', 's', 0, 0):
	case WORD('t', 't', 'l', 0, 0, 0, 0, 0):
	case WORD('p', 't', 't', 'l', 0, 0, 0, 0):
	case WORD('t', 'y', 'p', 'e', 0, 0, 0, 0):
	case WORD('k', 'e', 'y', 's', 0, 0, 0, 0):
	case WORD('s', 'c', 'a', 'n', 0, 0, 0, 0):
	case WORD('d', 'u', 'm', 'p', 0, 0, 0, 0):
	case WORD('t', 'o', 'u', 'c', 'h', 0, 0, 0):
	case WORD('o', 'b', 'j', 'e', 'c', 't', 0, 0):
	case WORD('e', 'x', 'p', 'i', 'r', 'e', 't', 'i'): /* EXPIRETIME */
	case WORD('p', 'e', 'x', 'p', 'i', 'r', 'e', 't'): /* PEXPIRETIME */
	case WORD('r', 'a', 'n', 'd', 'o', 'm', 'k', 'e'): /* RANDOMKEY */
	case WORD('d', 'b', 's', 'i', 'z', 'e', 0, 0):
	case WORD('s', 't', 'r', 'l', 'e', 'n', 0, 0):
	case WORD('g', 'e', 't', 'r', 'a', 'n', 'g', 'e'):
	case WORD('s', 'u', 'b', 's', 't', 'r', 0, 0):
	case WORD('l', 'c', 's', 0, 0, 0, 0, 0):
	case WORD('g', 'e', 't', 'b', 'i', 't', 0, 0):
	case WORD('b', 'i', 't', 'c', 'o', 'u', 'n', 't'):
	case WORD('b', 'i', 't', 'p', 'o', 's', 0, 0):
	case WORD('p', 'f', 'c', 'o', 'u', 'n', 't', 0):
	case WORD('h', 'g', 'e', 't', 0, 0, 0, 0):
	case WORD('h', 'm', 'g', 'e', 't', 0, 0, 0):
	case WORD('h', 'g', 'e', 't', 'a', 'l', 'l', 0):
	case WORD('h', 'k', 'e', 'y', 's', 0, 0, 0):
	case WORD('h', 'v', 'a', 'l', 's', 0, 0, 0):
	case WORD('h', 'l', 'e', 'n', 0, 0, 0, 0):
	case WORD('h', 'e', 'x', 'i', 's', 't', 's', 0):
	case WORD('h', 's', 't', 'r', 'l', 'e', 'n', 0):
	case WORD('h', 's', 'c', 'a', 'n', 0, 0, 0):
	case WORD('h', 'r', 'a', 'n', 'd', 'f', 'i', 'e'): /* HRANDFIELD */
	case WORD('h', 't', 't', 'l', 0, 0, 0, 0):
	case WORD('h', 'p', 't', 't', 'l', 0, 0, 0):
	case WORD('l', 'r', 'a', 'n', 'g', 'e', 0, 0):
	case WORD('l', 'i', 'n', 'd', 'e', 'x', 0, 0):
	case WORD('l', 'l', 'e', 'n', 0, 0, 0, 0):
	case WORD('l', 'p', 'o', 's', 0, 0, 0, 0):
	case WORD('s', 'm', 'e', 'm', 'b', 'e', 'r', 's'):
	case WORD('s', 'i', 's', 'm', 'e', 'm', 'b', 'e'): /* SISMEMBER */
	case WORD('s', 'm', 'i', 's', 'm', 'e', 'm', 'b'): /* SMISMEMBER */
	case WORD('s', 'c', 'a', 'r', 'd', 0, 0, 0):
	case WORD('s', 's', 'c', 'a', 'n', 0, 0, 0):
	case WORD('s', 'r', 'a', 'n', 'd', 'm', 'e', 'm'): /* SRANDMEMBER */
	case WORD('s', 'd', 'i', 'f', 'f', 0, 0, 0):
	case WORD('s', 'i', 'n', 't', 'e', 'r', 0, 0):
	case WORD('s', 'i', 'n', 't', 'e', 'r', 'c', 'a'): /* SINTERCARD */
	case WORD('s', 'u', 'n', 'i', 'o', 'n', 0, 0):
	case WORD('z', 'r', 'a', 'n', 'g', 'e', 0, 0):
	case WORD('z', 'r', 'a', 'n', 'g', 'e', 'b', 'y'): /* ZRANGEBYSCORE, ZRANGEBYLEX */
	case WORD('z', 'r', 'e', 'v', 'r', 'a', 'n', 'g'):
	case WORD('z', 'r', 'a', 'n', 'k', 0, 0, 0):
	case WORD('z', 'r', 'e', 'v', 'r', 'a', 'n', 'k'):
	case WORD('z', 's', 'c', 'o', 'r', 'e', 0, 0):
	case WORD('z', 'm', 's', 'c', 'o', 'r', 'e', 0):
	case WORD('z', 'c', 'a', 'r', 'd', 0, 0, 0):
	case WORD('z', 'c', 'o', 'u', 'n', 't', 0, 0):
	case WORD('z', 'l', 'e', 'x', 'c', 'o', 'u', 'n'): /* ZLEXCOUNT */
	case WORD('z', 's', 'c', 'a', 'n', 0, 0, 0):
	case WORD('z', 'd', 'i', 'f', 'f', 0, 0, 0):
	case WORD('z', 'i', 'n', 't', 'e', 'r', 0, 0):
	case WORD('z', 'i', 'n', 't', 'e', 'r', 'c', 'a'): /* ZINTERCARD */
	case WORD('z', 'u', 'n', 'i', 'o', 'n', 0, 0):
	case WORD('z', 'r', 'a', 'n', 'd', 'm', 'e', 'm'): /* ZRANDMEMBER */
	case WORD('g', 'e', 'o', 'p', 'o', 's', 0, 0):
	case WORD('g', 'e', 'o', 'd', 'i', 's', 't', 0):
	case WORD('g', 'e', 'o', 'h', 'a', 's', 'h', 0):
	case WORD('x', 'r', 'a', 'n', 'g', 'e', 0, 0):
	case WORD('x', 'r', 'e', 'v', 'r', 'a', 'n', 'g'):
	case WORD('x', 'l', 'e', 'n', 0, 0, 0, 0):
	case WORD('x', 'r', 'e', 'a', 'd', 0, 0, 0):
	case WORD('x', 'p', 'e', 'n', 'd', 'i', 'n', 'g'):
	case WORD('x', 'i', 'n', 'f', 'o', 0, 0, 0):
	case WORD('s', 'o', 'r', 't', UNDERSCORE, 'r', 'o', 0):
		return REDIS_READ;
	case WORD('g', 'e', 'o', 's', 'e', 'a', 'r', 'c'): /* GEOSEARCH, GEOSEARCHSTORE */
		return length == 9 ? REDIS_READ : REDIS_WRITE;
	case WORD('b', 'i', 't', 'f', 'i', 'e', 'l', 'd'): /* BITFIELD, BITFIELD_RO */
		return length == 8 ? REDIS_WRITE : REDIS_READ;
	case WORD('g', 'e', 'o', 'r', 'a', 'd', 'i', 'u'): /* GEORADIUS, GEORADIUSBYMEMBER, and each with _RO */
		return length == 9 || length == 17 ? REDIS_WRITE : REDIS_READ;
	case WORD('s', 'e', 't', 0, 0, 0, 0, 0):
	case WORD('s', 'e', 't', 'n', 'x', 0, 0, 0):
	case WORD('s', 'e', 't', 'e', 'x', 0, 0, 0):
	case WORD('p', 's', 'e', 't', 'e', 'x', 0, 0):
	case WORD('m', 's', 'e', 't', 0, 0, 0, 0):
	case WORD('m', 's', 'e', 't', 'n', 'x', 0, 0):
	case WORD('g', 'e', 't', 's', 'e', 't', 0, 0):
	case WORD('g', 'e', 't', 'd', 'e', 'l', 0, 0):
	case WORD('g', 'e', 't', 'e', 'x', 0, 0, 0):
	case WORD('a', 'p', 'p', 'e', 'n', 'd', 0, 0):
	case WORD('s', 'e', 't', 'r', 'a', 'n', 'g', 'e'):
	case WORD('s', 'e', 't', 'b', 'i', 't', 0, 0):
	case WORD('b', 'i', 't', 'o', 'p', 0, 0, 0):
	case WORD('i', 'n', 'c', 'r', 0, 0, 0, 0):
	case WORD('d', 'e', 'c', 'r', 0, 0, 0, 0):
	case WORD('i', 'n', 'c', 'r', 'b', 'y', 0, 0):
	case WORD('d', 'e', 'c', 'r', 'b', 'y', 0, 0):
	case WORD('i', 'n', 'c', 'r', 'b', 'y', 'f', 'l'): /* INCRBYFLOAT */
	case WORD('d', 'e', 'l', 0, 0, 0, 0, 0):
	case WORD('u', 'n', 'l', 'i', 'n', 'k', 0, 0):
	case WORD('e', 'x', 'p', 'i', 'r', 'e', 0, 0):
	case WORD('p', 'e', 'x', 'p', 'i', 'r', 'e', 0):
	case WORD('e', 'x', 'p', 'i', 'r', 'e', 'a', 't'):
	case WORD('p', 'e', 'x', 'p', 'i', 'r', 'e', 'a'): /* PEXPIREAT */
	case WORD('p', 'e', 'r', 's', 'i', 's', 't', 0):
	case WORD('r', 'e', 'n', 'a', 'm', 'e', 0, 0):
	case WORD('r', 'e', 'n', 'a', 'm', 'e', 'n', 'x'):
	case WORD('m', 'o', 'v', 'e', 0, 0, 0, 0):
	case WORD('c', 'o', 'p', 'y', 0, 0, 0, 0):
	case WORD('s', 'o', 'r', 't', 0, 0, 0, 0):
	case WORD('r', 'e', 's', 't', 'o', 'r', 'e', 0):
	case WORD('m', 'i', 'g', 'r', 'a', 't', 'e', 0):
	case WORD('f', 'l', 'u', 's', 'h', 'd', 'b', 0):
	case WORD('f', 'l', 'u', 's', 'h', 'a', 'l', 'l'):
	case WORD('s', 'w', 'a', 'p', 'd', 'b', 0, 0):
	case WORD('p', 'f', 'a', 'd', 'd', 0, 0, 0):
	case WORD('p', 'f', 'm', 'e', 'r', 'g', 'e', 0):
	case WORD('h', 's', 'e', 't', 0, 0, 0, 0):
	case WORD('h', 's', 'e', 't', 'n', 'x', 0, 0):
	case WORD('h', 'm', 's', 'e', 't', 0, 0, 0):
	case WORD('h', 'd', 'e', 'l', 0, 0, 0, 0):
	case WORD('h', 'i', 'n', 'c', 'r', 'b', 'y', 0):
	case WORD('h', 'i', 'n', 'c', 'r', 'b', 'y', 'f'): /* HINCRBYFLOAT */
	case WORD('h', 'e', 'x', 'p', 'i', 'r', 'e', 0):
	case WORD('l', 'p', 'u', 's', 'h', 0, 0, 0):
	case WORD('r', 'p', 'u', 's', 'h', 0, 0, 0):
	case WORD('l', 'p', 'u', 's', 'h', 'x', 0, 0):
	case WORD('r', 'p', 'u', 's', 'h', 'x', 0, 0):
	case WORD('l', 'p', 'o', 'p', 0, 0, 0, 0):
	case WORD('r', 'p', 'o', 'p', 0, 0, 0, 0):
	case WORD('l', 'm', 'p', 'o', 'p', 0, 0, 0):
	case WORD('l', 's', 'e', 't', 0, 0, 0, 0):
	case WORD('l', 'r', 'e', 'm', 0, 0, 0, 0):
	case WORD('l', 't', 'r', 'i', 'm', 0, 0, 0):
	case WORD('l', 'i', 'n', 's', 'e', 'r', 't', 0):
	case WORD('l', 'm', 'o', 'v', 'e', 0, 0, 0):
	case WORD('r', 'p', 'o', 'p', 'l', 'p', 'u', 's'): /* RPOPLPUSH */
	case WORD('s', 'a', 'd', 'd', 0, 0, 0, 0):
	case WORD('s', 'r', 'e', 'm', 0, 0, 0, 0):
	case WORD('s', 'p', 'o', 'p', 0, 0, 0, 0):
	case WORD('s', 'm', 'o', 'v', 'e', 0, 0, 0):
	case WORD('s', 'd', 'i', 'f', 'f', 's', 't', 'o'): /* SDIFFSTORE */
	case WORD('s', 'i', 'n', 't', 'e', 'r', 's', 't'): /* SINTERSTORE */
	case WORD('s', 'u', 'n', 'i', 'o', 'n', 's', 't'): /* SUNIONSTORE */
	case WORD('z', 'a', 'd', 'd', 0, 0, 0, 0):
	case WORD('z', 'r', 'e', 'm', 0, 0, 0, 0):
	case WORD('z', 'i', 'n', 'c', 'r', 'b', 'y', 0):
	case WORD('z', 'p', 'o', 'p', 'm', 'i', 'n', 0):
	case WORD('z', 'p', 'o', 'p', 'm', 'a', 'x', 0):
	case WORD('z', 'm', 'p', 'o', 'p', 0, 0, 0):
	case WORD('z', 'r', 'a', 'n', 'g', 'e', 's', 't'): /* ZRANGESTORE */
	case WORD('z', 'r', 'e', 'm', 'r', 'a', 'n', 'g'): /* ZREMRANGEBY... */
	case WORD('z', 'd', 'i', 'f', 'f', 's', 't', 'o'): /* ZDIFFSTORE */
	case WORD('z', 'i', 'n', 't', 'e', 'r', 's', 't'): /* ZINTERSTORE */
	case WORD('z', 'u', 'n', 'i', 'o', 'n', 's', 't'): /* ZUNIONSTORE */
	case WORD('g', 'e', 'o', 'a', 'd', 'd', 0, 0):
	case WORD('x', 'a', 'd', 'd', 0, 0, 0, 0):
	case WORD('x', 'd', 'e', 'l', 0, 0, 0, 0):
	case WORD('x', 't', 'r', 'i', 'm', 0, 0, 0):
	case WORD('x', 'a', 'c', 'k', 0, 0, 0, 0):
	case WORD('x', 'c', 'l', 'a', 'i', 'm', 0, 0):
	case WORD('x', 'a', 'u', 't', 'o', 'c', 'l', 'a'): /* XAUTOCLAIM */
	case WORD('x', 'g', 'r', 'o', 'u', 'p', 0, 0):
	case WORD('x', 's', 'e', 't', 'i', 'd', 0, 0):
	case WORD('x', 'r', 'e', 'a', 'd', 'g', 'r', 'o'): /* XREADGROUP */
		return REDIS_WRITE;
	case WORD('b', 'l', 'p', 'o', 'p', 0, 0, 0):
	case WORD('b', 'r', 'p', 'o', 'p', 0, 0, 0):
	case WORD('b', 'r', 'p', 'o', 'p', 'l', 'p', 'u'): /* BRPOPLPUSH */
	case WORD('b', 'l', 'm', 'o', 'v', 'e', 0, 0):
	case WORD('b', 'l', 'm', 'p', 'o', 'p', 0, 0):
	case WORD('b', 'z', 'm', 'p', 'o', 'p', 0, 0):
	case WORD('b', 'z', 'p', 'o', 'p', 'm', 'i', 'n'):
	case WORD('b', 'z', 'p', 'o', 'p', 'm', 'a', 'x'):
	case WORD('w', 'a', 'i', 't', 0, 0, 0, 0):
	case WORD('w', 'a', 'i', 't', 'a', 'o', 'f', 0):
		return REDIS_BLOCKING;
	case WORD('m', 'u', 'l', 't', 'i', 0, 0, 0):
	case WORD('e', 'x', 'e', 'c', 0, 0, 0, 0):
	case WORD('d', 'i', 's', 'c', 'a', 'r', 'd', 0):
	case WORD('w', 'a', 't', 'c', 'h', 0, 0, 0):
	case WORD('u', 'n', 'w', 'a', 't', 'c', 'h', 0):
		return REDIS_TRANSACTION;
	case WORD('e', 'v', 'a', 'l', 0, 0, 0, 0):
	case WORD('e', 'v', 'a', 'l', UNDERSCORE, 'r', 'o', 0):
	case WORD('e', 'v', 'a', 'l', 's', 'h', 'a', 0):
	case WORD('e', 'v', 'a', 'l', 's', 'h', 'a', UNDERSCORE): /* EVALSHA_RO */
	case WORD('f', 'c', 'a', 'l', 'l', 0, 0, 0):
	case WORD('f', 'c', 'a', 'l', 'l', UNDERSCORE, 'r', 'o'):
	case WORD('s', 'c', 'r', 'i', 'p', 't', 0, 0):
	case WORD('f', 'u', 'n', 'c', 't', 'i', 'o', 'n'):
		return REDIS_SCRIPTING;
	case WORD('p', 'u', 'b', 'l', 'i', 's', 'h', 0):
	case WORD('s', 'p', 'u', 'b', 'l', 'i', 's', 'h'):
	case WORD('p', 'u', 'b', 's', 'u', 'b', 0, 0):
	case WORD('s', 'u', 'b', 's', 'c', 'r', 'i', 'b'): /* SUBSCRIBE */
	case WORD('p', 's', 'u', 'b', 's', 'c', 'r', 'i'): /* PSUBSCRIBE */
	case WORD('s', 's', 'u', 'b', 's', 'c', 'r', 'i'): /* SSUBSCRIBE */
	case WORD('u', 'n', 's', 'u', 'b', 's', 'c', 'r'): /* UNSUBSCRIBE */
	case WORD('p', 'u', 'n', 's', 'u', 'b', 's', 'c'): /* PUNSUBSCRIBE */
	case WORD('s', 'u', 'n', 's', 'u', 'b', 's', 'c'): /* SUNSUBSCRIBE */
		return REDIS_PUBSUB;
	case WORD('p', 'i', 'n', 'g', 0, 0, 0, 0):
	case WORD('e', 'c', 'h', 'o', 0, 0, 0, 0):
	case WORD('a', 'u', 't', 'h', 0, 0, 0, 0):
	case WORD('h', 'e', 'l', 'l', 'o', 0, 0, 0):
	case WORD('s', 'e', 'l', 'e', 'c', 't', 0, 0):
	case WORD('q', 'u', 'i', 't', 0, 0, 0, 0):
	case WORD('r', 'e', 's', 'e', 't', 0, 0, 0):
	case WORD('c', 'l', 'i', 'e', 'n', 't', 0, 0):
	case WORD('c', 'o', 'm', 'm', 'a', 'n', 'd', 0):
	case WORD('a', 's', 'k', 'i', 'n', 'g', 0, 0):
	case WORD('r', 'e', 'a', 'd', 'o', 'n', 'l', 'y'):
	case WORD('r', 'e', 'a', 'd', 'w', 'r', 'i', 't'): /* READWRITE */
		return REDIS_CONNECTION;
	case WORD('i', 'n', 'f', 'o', 0, 0, 0, 0):
	case WORD('c', 'o', 'n', 'f', 'i', 'g', 0, 0):
	case WORD('a', 'c', 'l', 0, 0, 0, 0, 0):
	case WORD('b', 'g', 's', 'a', 'v', 'e', 0, 0):
	case WORD('b', 'g', 'r', 'e', 'w', 'r', 'i', 't'): /* BGREWRITEAOF */
	case WORD('s', 'a', 'v', 'e', 0, 0, 0, 0):
	case WORD('l', 'a', 's', 't', 's', 'a', 'v', 'e'):
	case WORD('c', 'l', 'u', 's', 't', 'e', 'r', 0):
	case WORD('d', 'e', 'b', 'u', 'g', 0, 0, 0):
	case WORD('f', 'a', 'i', 'l', 'o', 'v', 'e', 'r'):
	case WORD('l', 'a', 't', 'e', 'n', 'c', 'y', 0):
	case WORD('m', 'e', 'm', 'o', 'r', 'y', 0, 0):
	case WORD('m', 'o', 'd', 'u', 'l', 'e', 0, 0):
	case WORD('m', 'o', 'n', 'i', 't', 'o', 'r', 0):
	case WORD('p', 's', 'y', 'n', 'c', 0, 0, 0):
	case WORD('s', 'y', 'n', 'c', 0, 0, 0, 0):
	case WORD('r', 'e', 'p', 'l', 'c', 'o', 'n', 'f'):
	case WORD('r', 'e', 'p', 'l', 'i', 'c', 'a', 'o'): /* REPLICAOF */
	case WORD('s', 'l', 'a', 'v', 'e', 'o', 'f', 0):
	case WORD('r', 'o', 'l', 'e', 0, 0, 0, 0):
	case WORD('s', 'h', 'u', 't', 'd', 'o', 'w', 'n'):
	case WORD('s', 'l', 'o', 'w', 'l', 'o', 'g', 0):
	case WORD('t', 'i', 'm', 'e', 0, 0, 0, 0):
		return REDIS_ADMIN;
	}
	return OTHER;
}

/* Not the protocol, or not from its beginning: the server answers by an error and closes, or it answers what
 * began before the agent came. */
static __always_inline long redis_confused(struct connection *c)
{
	struct redis_state *p = redis(c);
	c->conn = CONN_LOST;
	c->skip = 0;
	p->parse_state = REDIS_START;
	count_loss(c->server, LOST_PROTOCOL);
	return 1;
}

/* A command has come as a whole. */
static __always_inline void redis_complete(struct connection *c)
{
	struct redis_state *p = redis(c);
	u32 group = redis_group(p->word, p->length);
	p->parse_state = REDIS_START;
	if (!p->total)
		p->opener = group;
	if (group < COMMANDS)
		p->commands[group]++;
	p->total++;
	c->request = group | REQUEST_HAS_STATEMENT;
	c->understood = 1;
	if (p->word == WORD('p', 's', 'y', 'n', 'c', 0, 0, 0) || p->word == WORD('s', 'y', 'n', 'c', 0, 0, 0, 0))
		p->replica = 1;
}

#define REDIS_MAX_STRINGS 0x7fffffff
#define REDIS_MAX_STRING 0x7ffffff0

/* A line with the number of strings in an array is over. */
static __always_inline long redis_counted(struct connection *c)
{
	struct redis_state *p = redis(c);
	p->parse_state = REDIS_START;
	if (p->negative || !p->number)
		return 0; /* no command, and no answer */
	if (p->number > REDIS_MAX_STRINGS)
		return redis_confused(c);
	p->strings = p->number;
	p->first = 1;
	p->parse_state = REDIS_STRING;
	return 0;
}

/* A line with a string's length is over. */
static __always_inline long redis_measured(struct connection *c)
{
	struct redis_state *p = redis(c);
	if (p->negative || p->number > REDIS_MAX_STRING)
		return redis_confused(c);
	u32 length = p->number;
	p->parse_state = REDIS_DATA;
	c->skip = length + 2;
	if (!p->first)
		return 0;
	p->first = 0;
	p->length = length;
	p->word = 0;
	u32 seen = length < 8 ? length : 8;
	if (c->stage_at + seen <= c->staged && c->staged <= STAGE_BYTES) {
		u64 name = eight_bytes(c, STAGE_OFFSET + c->stage_at) | LOWER;
		p->word = seen < 8 ? name & LETTERS(seen & 7) : name;
		return 0;
	}
	if (seen) {
		p->parse_state = REDIS_NAME;
		p->left = seen;
	}
	return 0;
}

/* A digit of a number, or its end; leads to the state next. */
static __always_inline long redis_digit(struct connection *c, u8 byte, u8 next)
{
	struct redis_state *p = redis(c);
	if (byte == '\r' && p->digits) {
		p->parse_state = next;
		return 0;
	}
	if (byte == '-' && !p->digits && !p->negative) {
		p->negative = 1;
		return 0;
	}
	if (byte < '0' || byte > '9' || p->digits >= 10)
		return redis_confused(c);
	p->number = p->number * 10 + byte - '0';
	p->digits++;
	return 0;
}

/* The number in a line, behind its first byte, if it has at most five digits: how many bytes the line takes with its
 * end, or 0. */
static __always_inline u32 redis_line(u64 text, u64 *number)
{
	u64 n = 0;
#pragma unroll
	for (u32 i = 1; i <= 5; i++) {
		u8 digit = text >> (8 * i);
		if (digit < '0' || digit > '9')
			return 0;
		n = n * 10 + digit - '0';
		if ((u8)(text >> (8 * i + 8)) == '\r') {
			*number = n;
			return i + 3;
		}
	}
	return 0;
}

/* A line's number at once, if it has come as a whole: how many bytes the line takes, or 0. */
static __always_inline u32 redis_number(struct connection *c)
{
	if (c->stage_at >= c->staged || c->staged > STAGE_BYTES)
		return 0;
	u64 number = 0;
	u32 line = redis_line(eight_bytes(c, STAGE_OFFSET + c->stage_at), &number);
	if (!line || c->stage_at + line > c->staged)
		return 0;
	redis(c)->number = number;
	return line;
}

static __always_inline void redis_begin_number(struct redis_state *p, u8 state)
{
	p->parse_state = state;
	p->number = 0;
	p->digits = 0;
	p->negative = 0;
}

/* A byte of a line that is a command. */
static __always_inline long redis_inline(struct connection *c, u8 byte)
{
	struct redis_state *p = redis(c);
	if (byte == '\n') {
		p->parse_state = REDIS_START;
		if (!p->length)
			return 0; /* an empty line */
		/* What comes first may be the middle of something. */
		if (!c->understood && redis_group(p->word, p->length) == OTHER)
			return redis_confused(c);
		redis_complete(c);
		return 0;
	}
	if (byte == ' ' || (byte >= '\t' && byte <= '\r')) {
		p->word_over = p->length > 0;
		return 0;
	}
	if (p->word_over)
		return 0;
	if (p->length < 8)
		p->word |= (u64)(byte | 0x20) << (8 * (p->length & 7));
	p->length++;
	return 0;
}

/* What goes on in a state with the byte at hand, or with the whole line where it is a number. */
static __always_inline long redis_byte(struct connection *c, u8 byte)
{
	struct redis_state *p = redis(c);
	u32 line;
	switch (p->parse_state) {
	case REDIS_START:
		if (byte == '*') {
			redis_begin_number(p, REDIS_COUNT);
			line = redis_number(c);
			consume(c, line ? line : 1);
			return line ? redis_counted(c) : 0;
		}
		p->parse_state = REDIS_INLINE;
		p->word = 0;
		p->length = 0;
		p->word_over = 0;
		consume(c, 1);
		return redis_inline(c, byte);
	case REDIS_INLINE:
		consume(c, 1);
		return redis_inline(c, byte);
	case REDIS_COUNT:
		consume(c, 1);
		return redis_digit(c, byte, REDIS_COUNT_END);
	case REDIS_COUNT_END:
		consume(c, 1);
		return redis_counted(c);
	case REDIS_STRING:
		if (byte != '$')
			return redis_confused(c);
		redis_begin_number(p, REDIS_LENGTH);
		line = redis_number(c);
		consume(c, line ? line : 1);
		return line ? redis_measured(c) : 0;
	case REDIS_LENGTH:
		consume(c, 1);
		return redis_digit(c, byte, REDIS_LENGTH_END);
	case REDIS_LENGTH_END:
		consume(c, 1);
		return redis_measured(c);
	case REDIS_NAME:
		p->word |= (u64)(byte | 0x20) << (8 * ((p->length < 8 ? p->length - p->left : 8 - p->left) & 7));
		consume(c, 1);
		c->skip--;
		if (!--p->left)
			p->parse_state = REDIS_DATA;
		return 0;
	}
	return 0;
}

static long redis_step(u32 i, struct feed *f)
{
	struct connection *c = f->c;
	struct redis_state *p = redis(c);
	if (p->parse_state == REDIS_DATA) {
		if (!skip_bytes(c) && c->skip)
			return 1;
		p->parse_state = REDIS_STRING;
		if (!--p->strings) {
			redis_complete(c);
			if (p->replica)
				return 1;
		}
	}
	if (!c->in_left)
		return 1;
	if (c->stage_at >= c->staged && !stage(c))
		return redis_confused(c);
	if (c->stage_at >= STAGE_BYTES)
		return redis_confused(c);
	return redis_byte(c, c->bytes[(STAGE_OFFSET + c->stage_at) & (2 * STAGE_OFFSET - 1)]);
}

/* The beginning of a turn, or what came into it before. */
static __always_inline void redis_turn(struct followed_task *followed, struct connection *c, struct task_struct *task)
{
	struct redis_state *p = redis(c);
	u64 now = bpf_ktime_get_ns();
	bool first = !followed->busy || followed->complete; /* it has answered, so that it has waited for clients since */
	if (first) {
		begin(followed, task, now);
		followed->waiting = 0;
		followed->current = 0;
		followed->shared = 0;
	} else {
		advance(followed, task, now);
	}
	/* What was not answered in its turn waits for something else than the server. */
	if (p->total && p->turn == followed->start)
		return;
	p->turn = followed->start;
	p->from = first ? followed->start : now;
	for (int i = 0; i < PHASES; i++)
		p->before[i] = first ? 0 : followed->phase[i];
	c->pid = task->pid;
}

/* What the thread is at, for a reader meanwhile: the commands of the turn's first connection, whose clock is the
 * turn's. Of several groups' each gets its share at the end only, and one that blocks is answered in another turn. */
static __always_inline void redis_now(struct followed_task *followed, struct connection *c)
{
	struct redis_state *p = redis(c);
	u32 group = c->request & REQUEST_COMMAND_BITS;
	bool first = p->from == followed->start;

	if (followed->current && !first)
		return;
	followed->shared = !first || group == REDIS_BLOCKING || group >= COMMANDS || p->commands[group] != p->total;
	followed->current = followed->server ? c->request : OTHER | REQUEST_HAS_STATEMENT; /* see redis_observe() */
}

static __always_inline int redis_received(struct followed_task *followed, struct connection *c, struct names *names, u64 buf, u32 len)
{
	struct redis_state *p = redis(c);
	if (p->replica)
		return 0;
	u32 before = p->turn == followed->start ? p->total : 0;
	redis_turn(followed, c, bpf_get_current_task_btf());
	if (c->conn != CONN_READY)
		return 0;
	struct feed f = {.followed = followed, .c = c};
	feed(c, buf, len);
	bpf_loop(1 << 20, redis_step, &f, 0);
	if (c->in_left && c->conn == CONN_READY && !p->replica)
		redis_confused(c);
	if (!p->total)
		return 0;
	if (!before)
		followed->waiting++;
	redis_now(followed, c);
	return 0;
}

#define REDIS_NULL 3 /* bytes of the line of a null */

/* One line of push messages, and the string that it is the length of. */
static long redis_push_step(u32 i, struct feed *f)
{
	struct redis_state *p = redis(f->c);
	if (p->out >= p->out_end)
		return 1;
	u64 text = user_word(p->out), number = 0;
	u8 type = text;
	u32 line = type == '_' ? REDIS_NULL : redis_line(text, &number);
	if (!line || (!p->elements && type != '>'))
		return 1;
	switch (type) {
	case '>':
	case '*':
		p->elements += number;
		break;
	case '$':
		p->out += number + 2;
		break;
	case ':':
	case '_':
		break;
	default:
		return 1;
	}
	p->out += line;
	p->elements -= type != '>';
	return 0;
}

#define REDIS_PUSH_LINES 4096 /* that are parsed in one send */

/* Commands that wait are not answered by push messages (RESP3); those that are answered in their turn may be, as
 * SUBSCRIBE is. */
static __always_inline int redis_wrote(struct followed_task *followed, struct connection *c, struct sock *sk, u64 buf, u32 len)
{
	struct redis_state *p = redis(c);
	struct feed f = {.c = c};
	bool waits = p->commands[REDIS_BLOCKING] || (p->turn != followed->start && c->pid == bpf_get_current_task_btf()->pid);
	p->pushed = 0;
	if (!p->total || !waits)
		return 0;
	p->out = buf;
	p->out_end = buf + len;
	p->elements = 0;
	bpf_loop(REDIS_PUSH_LINES, redis_push_step, &f, 0);
	p->pushed = p->out == p->out_end && !p->elements;
	return 0;
}

/* The commands of one group, n of the total that took ns together. */
__noinline int redis_observe(struct followed_task *followed, struct redis_state *p, u32 group, u64 ns, bool moved)
{
	if (!followed || !p || group >= COMMANDS)
		return 0;
	u64 n = p->commands[group], total = p->total;
	/* Server 0 has the statements of several engines. */
	u32 key = followed->server ? followed->server * COMMANDS + group : OTHER;
	struct stats *s = bpf_map_lookup_elem(&statements, &key);
	p->commands[group] = 0;
	if (!s) {
		count_loss(followed->server, LOST_SERIES);
		return 0;
	}
	if (!total)
		return 0;
	u64 each = ns / total;
	add(&s->all.count, n);
	add(&s->all.sum_ns, ns * n / total);
	if (moved) {
		add(&s->all.phase_ns[PHASE_WAIT], ns * n / total);
	} else {
		for (int i = 0; i < PHASES; i++)
			add(&s->all.phase_ns[i], (followed->phase[i] - p->before[i]) * n / total);
	}
	if (total > 1) {
		add(&s->pipelined, n - (group == p->opener));
		add(&s->pipelined_ns, each * (total - 1) / 2 * n);
	}
	u32 slot = native_slot(each);
	if (slot < NATIVE_SLOTS)
		add(&s->slots[slot], n);
	return 0;
}

/* The server answers all that it has read from a client. What it sends without having read is no answer. */
static __always_inline int redis_sent(struct followed_task *followed, struct connection *c, struct task_struct *task)
{
	struct redis_state *p = redis(c);
	if (c->conn == CONN_LOST) {
		c->conn = CONN_READY;
		c->skip = 0;
		p->parse_state = REDIS_START;
	}
	if (!p->total || p->pushed)
		return 0;
	u64 now = bpf_ktime_get_ns();
	if (followed->busy) {
		advance(followed, task, now);
	} else {
		begin(followed, task, now);
		followed->waiting = 0;
	}
	/* One of the server's other threads may write what the main one made. */
	bool moved = c->pid != task->pid;
	if (!moved && p->turn != followed->start) {
		p->from = followed->start;
		__builtin_memset(p->before, 0, sizeof(p->before));
	} else if (!moved && followed->waiting) {
		followed->waiting--;
	}
	u64 ns = now > p->from ? now - p->from : 0;
	for (u32 group = 0; group < COMMANDS; group++)
		if (p->commands[group])
			redis_observe(followed, p, group, ns, moved);
	p->total = 0;
	c->request = 0;
	followed->complete = 1;
	if (followed->waiting)
		followed->shared = 1;
	else
		followed->current = 0;
	return 0;
}

static __always_inline int redis_reads(struct followed_task *followed, struct connection *c, struct task_struct *task)
{
	return 0;
}

static __always_inline int redis_drained(struct followed_task *followed, struct connection *c)
{
	return 0;
}

static __always_inline int redis_turns(struct followed_task *followed, struct connection *c, struct task_struct *task, bool sends)
{
	return 0;
}

static __always_inline u32 redis_waits(struct followed_task *followed, long nr)
{
	return PHASE_WAIT;
}

/* The thread waits for any of its clients: its turn is over. */
static __always_inline bool redis_rests(struct followed_task *followed, struct task_struct *task, long nr, u64 now)
{
	if (!is_poll(nr))
		return false;
	followed->busy = 0;
	followed->current = 0;
	followed->waiting = 0;
	return true;
}

#endif
