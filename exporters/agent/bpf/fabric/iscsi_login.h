/* The text of a login over iSCSI: both ends negotiate by keys and values, each ended by a zero byte (RFC 7143, 6). */
#ifndef __PLUMBLINE_ISCSI_LOGIN_H__
#define __PLUMBLINE_ISCSI_LOGIN_H__

#include "user_target.h"

/* What is sought in a text. */
struct login_search {
	struct login_text *text;
	u32 target;  /* where the target's name begins, the first one; 0 for nowhere */
	u32 end;     /* and where it ends; 0 if the text ends first */
	u8 digests;  /* enum digest: chosen */
	u8 in_value; /* the byte before was no end */
	u8 pad[2];
};

static long login_step(u32 i, struct login_search *s)
{
	u32 at = i & LOGIN_TEXT;
	const char *key = s->text->text + at;

	if (at >= s->text->length)
		return 1;
	if (s->target && !s->end && at >= s->target && !*key)
		s->end = at;
	if (!s->in_value) {
		if (!s->target && !bpf_strncmp(key, 11, "TargetName="))
			s->target = at + 11;
		else if (!bpf_strncmp(key, 20, "HeaderDigest=CRC32C"))
			s->digests |= DIGEST_HEADER;
		else if (!bpf_strncmp(key, 18, "DataDigest=CRC32C"))
			s->digests |= DIGEST_DATA;
	}
	s->in_value = *key != 0;
	return 0;
}

static __noinline void wire_login(struct session *s, struct message *m, struct login_text *text, bool to_target)
{
	struct login_search found = {.text = text};

	if (text) {
		bpf_loop(LOGIN_TEXT + 1, login_step, &found, 0);
		/* The first name counts, if it is whole. */
		if (to_target && !s->target[0] && found.end && found.end - found.target < sizeof(s->target))
			take_name(s, text, found.target);
		if (!to_target)
			s->chosen |= found.digests;
	}
	if (!to_target && m->final)
		login_done(s);
}

/* The refused header is what the message brings. Of others than a command the command goes on. */
static __always_inline u32 wire_rejected(struct login_text *text)
{
	const u8 *h = (u8 *)text->text;

	return text->length >= PDU_HEADER && (h[0] & 0x3f) == PDU_SCSI_COMMAND ? be32(h + 16) : 0xffffffff;
}

#endif
