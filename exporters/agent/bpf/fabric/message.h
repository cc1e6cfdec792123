/* The interface between a storage network's wire and the following of its connections at a target in user space
 * (user_target.h). A wire is a header file that includes this one and defines
 *
 *   WIRE_HEADER_MAX                        the longest header, in bytes, less than HEADER_CAPACITY / 2
 *   WIRE_GUESSES                           1 to try digests where a connection's beginning was not seen, else 0
 *   u32 wire_need(header, have)            the header's length, as `have` bytes show it; over `have` until it is whole
 *   bool wire_begins(header, have)         may a connection's first message begin with these bytes (1 or more)?
 *   int wire_parse(header, m, to_target)   0, or -1 if a whole header is none of this wire in this direction
 *   void wire_login(s, m, text, to_target) reads a login's message, with its text, or 0 if there is none
 *   u32 wire_rejected(text)                the tag of the message that a target has refused
 *
 * and a program file, which includes the wire's header, user_target.h and user_target_programs.h.
 */
#ifndef __PLUMBLINE_MESSAGE_H__
#define __PLUMBLINE_MESSAGE_H__

/* The verifier bounds a header's place and length by masks. */
#define HEADER_CAPACITY 256

#define DIGEST_SIZE 4

enum digest {
	DIGEST_HEADER = 1,
	DIGEST_DATA = 2,
};

enum message_kind {
	MESSAGE_OTHER,
	MESSAGE_COMMAND,
	MESSAGE_ANSWER, /* a command's status, with its last data or alone */
	MESSAGE_LOGIN,
	MESSAGE_LOGIN_ANSWER,
	MESSAGE_TASK, /* requests the end of commands */
	MESSAGE_TASK_ANSWER,
	MESSAGE_HELLO,    /* the first one of a connection, before its login */
	MESSAGE_REJECTED, /* has the header of a message to the target that is refused, as its text */
};

/* What a task management request ends: see wire_parse. */
enum task_scope {
	TASK_NONE,
	TASK_ONE,     /* the command of the tag `reference` */
	TASK_UNIT,    /* all of the LUN */
	TASK_SESSION, /* all */
};

/* One message's header. */
struct message {
	u32 tag;       /* ties an answer to its command on a connection */
	u32 lun;       /* or namespace, as Linux numbers them */
	u32 reference; /* the command that a task management request is about */
	u32 bytes;     /* of a read's or write's command: how many it requests */
	u32 rest;      /* that follow the header, without digests */
	u32 data;      /* of these, those with a digest of their own if that is agreed */
	u32 text;      /* of a login: bytes of its text */
	u16 lead;      /* before the text */
	u8 kind;       /* enum message_kind */
	u8 op;         /* enum wire_op, of a command */
	u8 failed;     /* an answer that is not good */
	u8 scope;      /* enum task_scope */
	u8 final;      /* of an answer to a login: the connection's first command may come */
	u8 continues;  /* a login's text goes on in the next one */
	u8 anywhere;   /* a command that succeeds on any LUN, also on one that is not there */
	u8 doubtful;   /* data that others choose may look like it: no direction is adopted here */
	u8 pad[2];
};

#endif
