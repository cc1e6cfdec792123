/* The text of logins under way: a login's text may be spread over several messages, and a message over several
 * calls. */
#ifndef __PLUMBLINE_LOGIN_H__
#define __PLUMBLINE_LOGIN_H__

#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_helpers.h>

/* As much of a text as is read; open-iscsi's are 500 bytes long. A power of two less one, so that the
 * verifier can bound it. */
#define LOGIN_TEXT 1023

struct login_text {
	u32 length;
	u32 pad;
	char text[2 * (LOGIN_TEXT + 1)]; /* the second half is never written */
};

/* Logins under way: by the socket's inode number and the direction. One that is thrown out is a session without a
 * name. */
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
	if (!n)
		return;
	if (bpf_probe_read_user(t->text + at, n, (void *)address))
		t->length = LOGIN_TEXT; /* no more of it can be known */
	else
		t->length += n;
}

static __always_inline void login_forget(u64 key)
{
	bpf_map_delete_elem(&logins, &key);
}

#endif
