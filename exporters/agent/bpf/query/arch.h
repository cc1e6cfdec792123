/* System calls as the two supported architectures number them and pass their arguments. */
#ifndef __QUERY_ARCH_H__
#define __QUERY_ARCH_H__

#if defined(__TARGET_ARCH_x86)
#define SYSCALL_NR(r) ((long)(int)(r)->orig_ax)
#define ARG1(r) ((r)->di)
#define ARG2(r) ((r)->si)
#define CALL_ARG1(r) ((r)->di)
#define CALL_ARG2(r) ((r)->si)
#define CALL_ARG3(r) ((r)->dx)
#define CALL_RET(r) ((r)->ax)
enum {
	NR_read = 0, NR_write = 1, NR_pread64 = 17, NR_pwrite64 = 18, NR_readv = 19, NR_writev = 20,
	NR_sendto = 44, NR_recvfrom = 45, NR_sendmsg = 46, NR_recvmsg = 47, NR_fsync = 74,
	NR_fdatasync = 75, NR_ftruncate = 77, NR_sync_file_range = 277, NR_msync = 26, NR_sync = 162,
	NR_syncfs = 306, NR_fallocate = 285, NR_preadv = 295, NR_pwritev = 296, NR_preadv2 = 327,
	NR_pwritev2 = 328, NR_poll = 7, NR_ppoll = 271, NR_select = 23, NR_pselect6 = 270,
	NR_epoll_wait = 232, NR_epoll_pwait = 281, NR_epoll_pwait2 = 441,
};
#elif defined(__TARGET_ARCH_arm64)
#define SYSCALL_NR(r) ((long)(r)->syscallno)
#define ARG1(r) ((r)->regs[0])
#define ARG2(r) ((r)->regs[1])
#define CALL_ARG1(r) ((r)->regs[0])
#define CALL_ARG2(r) ((r)->regs[1])
#define CALL_ARG3(r) ((r)->regs[2])
#define CALL_RET(r) ((r)->regs[0])
enum {
	NR_read = 63, NR_write = 64, NR_pread64 = 67, NR_pwrite64 = 68, NR_readv = 65, NR_writev = 66,
	NR_sendto = 206, NR_recvfrom = 207, NR_sendmsg = 211, NR_recvmsg = 212, NR_fsync = 82,
	NR_fdatasync = 83, NR_ftruncate = 46, NR_sync_file_range = 84, NR_msync = 227, NR_sync = 81,
	NR_syncfs = 267, NR_fallocate = 47, NR_preadv = 69, NR_pwritev = 70, NR_preadv2 = 286,
	NR_pwritev2 = 287, NR_poll = -100, NR_ppoll = 73, NR_select = -101, NR_pselect6 = 72,
	NR_epoll_wait = -102, NR_epoll_pwait = 22, NR_epoll_pwait2 = 441,
};
#endif
/* One number on every architecture. */
enum { NR_io_uring_enter = 426 };

#endif
