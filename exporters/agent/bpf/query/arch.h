/* System calls as the two supported architectures number them and pass their arguments. */
#ifndef __QUERY_ARCH_H__
#define __QUERY_ARCH_H__

#if defined(__TARGET_ARCH_x86)
#define SYSCALL_NR(r) ((long)(int)(r)->orig_ax)
#define ARG1(r) ((r)->di)
#define ARG2(r) ((r)->si)
#define ARG3(r) ((r)->dx)
#define ARG4(r) ((r)->r10)
#define CALL_ARG1(r) ((r)->di)
#define CALL_ARG2(r) ((r)->si)
#define CALL_ARG3(r) ((r)->dx)
#define CALL_RET(r) ((r)->ax)
/* clang-format off */
enum {
	NR_read = 0, NR_write = 1, NR_pread64 = 17, NR_pwrite64 = 18, NR_readv = 19, NR_writev = 20,
	NR_sendto = 44, NR_recvfrom = 45, NR_sendmsg = 46, NR_recvmsg = 47, NR_fsync = 74,
	NR_fdatasync = 75, NR_ftruncate = 77, NR_sync_file_range = 277, NR_msync = 26, NR_sync = 162,
	NR_syncfs = 306, NR_fallocate = 285, NR_preadv = 295, NR_pwritev = 296, NR_preadv2 = 327,
	NR_pwritev2 = 328, NR_poll = 7, NR_ppoll = 271, NR_select = 23, NR_pselect6 = 270,
	NR_epoll_wait = 232, NR_epoll_pwait = 281, NR_epoll_pwait2 = 441,
	NR_open = 2, NR_close = 3, NR_stat = 4, NR_fstat = 5, NR_lstat = 6, NR_access = 21,
	NR_truncate = 76, NR_rename = 82, NR_mkdir = 83, NR_rmdir = 84, NR_link = 86, NR_unlink = 87,
	NR_symlink = 88, NR_readlink = 89, NR_statfs = 137, NR_fstatfs = 138, NR_readahead = 187,
	NR_getdents64 = 217, NR_fadvise64 = 221, NR_openat = 257, NR_mkdirat = 258,
	NR_newfstatat = 262, NR_unlinkat = 263, NR_renameat = 264, NR_linkat = 265,
	NR_symlinkat = 266, NR_readlinkat = 267, NR_faccessat = 269, NR_renameat2 = 316,
	NR_copy_file_range = 326, NR_statx = 332,
	NR_kill = 62, NR_tkill = 200, NR_tgkill = 234, NR_futex = 202, NR_semop = 65, NR_semtimedop = 220,
	NR_splice = 275,
};
/* clang-format on */
#elif defined(__TARGET_ARCH_arm64)
#define SYSCALL_NR(r) ((long)(r)->syscallno)
#define ARG1(r) ((r)->regs[0])
#define ARG2(r) ((r)->regs[1])
#define ARG3(r) ((r)->regs[2])
#define ARG4(r) ((r)->regs[3])
#define CALL_ARG1(r) ((r)->regs[0])
#define CALL_ARG2(r) ((r)->regs[1])
#define CALL_ARG3(r) ((r)->regs[2])
#define CALL_RET(r) ((r)->regs[0])
/* clang-format off */
enum {
	NR_read = 63, NR_write = 64, NR_pread64 = 67, NR_pwrite64 = 68, NR_readv = 65, NR_writev = 66,
	NR_sendto = 206, NR_recvfrom = 207, NR_sendmsg = 211, NR_recvmsg = 212, NR_fsync = 82,
	NR_fdatasync = 83, NR_ftruncate = 46, NR_sync_file_range = 84, NR_msync = 227, NR_sync = 81,
	NR_syncfs = 267, NR_fallocate = 47, NR_preadv = 69, NR_pwritev = 70, NR_preadv2 = 286,
	NR_pwritev2 = 287, NR_poll = -100, NR_ppoll = 73, NR_select = -101, NR_pselect6 = 72,
	NR_epoll_wait = -102, NR_epoll_pwait = 22, NR_epoll_pwait2 = 441,
	NR_open = -103, NR_close = 57, NR_stat = -104, NR_fstat = 80, NR_lstat = -105, NR_access = -106,
	NR_truncate = 45, NR_rename = -107, NR_mkdir = -108, NR_rmdir = -109, NR_link = -110, NR_unlink = -111,
	NR_symlink = -112, NR_readlink = -113, NR_statfs = 43, NR_fstatfs = 44, NR_readahead = 213,
	NR_getdents64 = 61, NR_fadvise64 = 223, NR_openat = 56, NR_mkdirat = 34,
	NR_newfstatat = 79, NR_unlinkat = 35, NR_renameat = 38, NR_linkat = 37,
	NR_symlinkat = 36, NR_readlinkat = 78, NR_faccessat = 48, NR_renameat2 = 276,
	NR_copy_file_range = 285, NR_statx = 291,
	NR_kill = 129, NR_tkill = 130, NR_tgkill = 131, NR_futex = 98, NR_semop = 193, NR_semtimedop = 192,
	NR_splice = 76,
};
/* clang-format on */
#endif
/* One number on every architecture. */
enum { NR_io_uring_enter = 426,
	NR_faccessat2 = 439 };

#endif
