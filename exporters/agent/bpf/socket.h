/* What programs at the ends of calls on sockets know of the socket and of the call. */
#ifndef __PLUMBLINE_SOCKET_H__
#define __PLUMBLINE_SOCKET_H__

#include "kernel.h"
#include "uapi.h"

#define SOCKADDR_MAX 28 /* struct sockaddr_in6 */

/* Of a tracepoint's socket by BTF, which the verifier lets a program follow without a helper. */
static __always_inline u64 inode_by_btf(struct sock *sk)
{
	return sk->sk_socket->file->f_inode->i_ino;
}

/* Of any other one. */
static __always_inline u64 inode_at(struct sock *sk)
{
	struct socket *s = read_field(sk, sk_socket);
	struct file *file = read_field(s, file);
	struct inode *inode = read_field(file, f_inode);

	return read_field(inode, i_ino);
}

/* Does this result of a call mean that the connection is broken? */
static __always_inline bool is_broken(int result)
{
	return result < 0 && result != -EAGAIN && result != -EINTR && result != -ERESTARTSYS;
}

static __always_inline u32 family_of(struct sock *sk)
{
	return sk->__sk_common.skc_family;
}

/* Of a socket whose own functions (before Linux 6.3) are called with a file behind it, or by the kernel
 * itself, whose sockets have inode 0. */
static __always_inline u64 inode_behind(struct socket *s)
{
	return s->file ? s->file->f_inode->i_ino : 0;
}

#endif
