/* System calls as the two supported architectures number them and pass their arguments.
 *
 * An object that is compiled for one of them has the numbers as constants: NR_read. One that is compiled for both
 * learns which it is when it is loaded, from the fields that the kernel's struct pt_regs has; the verifier takes the
 * other one's branches out. There IS_CALL compares.
 */
#ifndef __PLUMBLINE_ARCH_H__
#define __PLUMBLINE_ARCH_H__

/* Name, number on x86-64, number on arm64; below 0: there is none. */
/* clang-format off */
#define SYSTEM_CALLS(X) \
	X(read, 0, 63) X(write, 1, 64) X(pread64, 17, 67) X(pwrite64, 18, 68) X(readv, 19, 65) \
	X(writev, 20, 66) X(sendto, 44, 206) X(recvfrom, 45, 207) X(sendmsg, 46, 211) \
	X(recvmsg, 47, 212) X(fsync, 74, 82) X(fdatasync, 75, 83) X(ftruncate, 77, 46) \
	X(sync_file_range, 277, 84) X(msync, 26, 227) X(sync, 162, 81) X(syncfs, 306, 267) \
	X(fallocate, 285, 47) X(preadv, 295, 69) X(pwritev, 296, 70) X(preadv2, 327, 286) \
	X(pwritev2, 328, 287) X(poll, 7, -100) X(ppoll, 271, 73) X(select, 23, -101) \
	X(pselect6, 270, 72) X(epoll_wait, 232, -102) X(epoll_pwait, 281, 22) X(epoll_pwait2, 441, 441) \
	X(open, 2, -103) X(close, 3, 57) X(stat, 4, -104) X(fstat, 5, 80) X(lstat, 6, -105) \
	X(access, 21, -106) X(truncate, 76, 45) X(rename, 82, -107) X(mkdir, 83, -108) \
	X(rmdir, 84, -109) X(link, 86, -110) X(unlink, 87, -111) X(symlink, 88, -112) \
	X(readlink, 89, -113) X(statfs, 137, 43) X(fstatfs, 138, 44) X(readahead, 187, 213) \
	X(getdents64, 217, 61) X(fadvise64, 221, 223) X(openat, 257, 56) X(mkdirat, 258, 34) \
	X(newfstatat, 262, 79) X(unlinkat, 263, 35) X(renameat, 264, 38) X(linkat, 265, 37) \
	X(symlinkat, 266, 36) X(readlinkat, 267, 78) X(faccessat, 269, 48) X(renameat2, 316, 276) \
	X(copy_file_range, 326, 285) X(statx, 332, 291) X(kill, 62, 129) X(tkill, 200, 130) \
	X(tgkill, 234, 131) X(futex, 202, 98) X(semop, 65, 193) X(semtimedop, 220, 192) \
	X(splice, 275, 76)
/* clang-format on */

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
#define NUMBER(name, x86, arm64) NR_##name = x86,
enum { SYSTEM_CALLS(NUMBER) };
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
#define NUMBER(name, x86, arm64) NR_##name = arm64,
enum { SYSTEM_CALLS(NUMBER) };
#else
struct pt_regs___x86 {
	unsigned long r10;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
} __attribute__((preserve_access_index));
struct pt_regs___arm64 {
	u64 regs[31];
	s32 syscallno;
} __attribute__((preserve_access_index));
#define ON_X86 bpf_core_field_exists(struct pt_regs___x86, orig_ax)
#define ON_REG(r, x86, arm64) \
	(ON_X86 ? (u64)((struct pt_regs___x86 *)(r))->x86 : (u64)((struct pt_regs___arm64 *)(r))->arm64)
#define SYSCALL_NR(r) ((int)ON_REG(r, orig_ax, syscallno))
#define ARG1(r) ON_REG(r, di, regs[0])
#define ARG2(r) ON_REG(r, si, regs[1])
#define ARG3(r) ON_REG(r, dx, regs[2])
#define ARG4(r) ON_REG(r, r10, regs[3])
#define NUMBER(name, x86, arm64) X86_##name = x86, ARM64_##name = arm64,
enum { SYSTEM_CALLS(NUMBER) };
#define IS_CALL(nr, name) (ON_X86 ? (nr) == X86_##name : (nr) == ARM64_##name)
#endif
/* One number on every architecture. */
enum { NR_io_uring_enter = 426,
	NR_faccessat2 = 439 };

#endif
