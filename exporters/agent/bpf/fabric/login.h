/* What the text of a login says, which both ends negotiate by keys and values, each ended by a zero byte (RFC 7143, 6). A login's text may
 * be spread over several messages, and a message over several calls.
 */
#ifndef __PLUMBLINE_LOGIN_H__
#define __PLUMBLINE_LOGIN_H__

#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_helpers.h>

/* As much of a text as is looked at; open-iscsi's are 500 bytes long. A power of two less one, so that the verifier can bound it. */
#define LOGIN_TEXT 1023

enum digest {
	DIGEST_HEADER = 1,
	DIGEST_DATA = 2,
};

struct login_text {
	u32 length;
	u32 pad;
	char text[2 * (LOGIN_TEXT + 1)]; /* the second half is never written */
};

/* Logins under way: by the socket's inode number and the direction. One that is thrown out is a session without a name. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 128);
	__type(key, u64);
	__type(value, struct login_text);
} logins SEC(".maps");

static const struct login_text no_text;

static __always_inline u64 login_key(u64 inode, bool to_target)
{
	return inode << 1 | to_target;
}

/* A login's text goes on with n bytes of user memory. */
static __always_inline void login_goes_on(u64 key, u64 address, u32 n)
{
	struct login_text *t = bpf_map_lookup_elem(&logins, &key);

	if (!t) {
		bpf_map_update_elem(&logins, &key, &no_text, BPF_NOEXIST);
		t = bpf_map_lookup_elem(&logins, &key);
		if (!t)
			return;
	}
	u32 at = t->length;
	if (at >= LOGIN_TEXT)
		return;
	if (n > LOGIN_TEXT - at)
		n = LOGIN_TEXT - at;
	at &= LOGIN_TEXT;
	barrier_var(n);
	n &= LOGIN_TEXT;
	if (n && !bpf_probe_read_user(t->text + at, n, (void *)address))
		t->length += n;
}

/* What is sought in a text. */
struct login_search {
	struct login_text *text;
	u32 target;  /* where the target's name begins; 0 for nowhere */
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
	if (!s->in_value) {
		if (!bpf_strncmp(key, 11, "TargetName="))
			s->target = at + 11;
		else if (!bpf_strncmp(key, 20, "HeaderDigest=CRC32C"))
			s->digests |= DIGEST_HEADER;
		else if (!bpf_strncmp(key, 18, "DataDigest=CRC32C"))
			s->digests |= DIGEST_DATA;
	}
	s->in_value = *key != 0;
	return 0;
}

/* The text is whole: what it says. It is forgotten by login_forget. */
static __always_inline void login_search(struct login_search *s)
{
	bpf_loop(LOGIN_TEXT + 1, login_step, s, 0);
}

static __always_inline void login_forget(u64 key)
{
	bpf_map_delete_elem(&logins, &key);
}

#endif
