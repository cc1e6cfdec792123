/* Numbers of the kernel's interface to user space. They are macros there, which BTF does not have. */
#ifndef __PLUMBLINE_UAPI_H__
#define __PLUMBLINE_UAPI_H__

#define AF_UNIX 1
#define AF_INET 2
#define AF_INET6 10

#define SOCK_STREAM 1
#define MSG_PEEK 2

#define EINTR 4
#define E2BIG 7
#define EAGAIN 11
#define EEXIST 17
#define ERESTARTSYS 512 /* within the kernel: user space sees EINTR, or nothing */

#define S_IFMT 00170000
#define S_IFBLK 0060000
#define S_IFREG 0100000
#define S_IFSOCK 0140000

#define CLOCK_TICK 10000000 /* ns; the unit of process start times in /proc */

#endif
