/* The kernel types that Plumbline's BPF programs read: hand-trimmed from the kernel's BTF,
 * only the structures and fields in use. Offsets do not count: every access is relocated
 * to the running kernel when the program is loaded (CO-RE), so the order and size here
 * need not match any kernel, but names and types must.
 *
 * To add something: copy the declaration from
 *     bpftool btf dump file /sys/kernel/btf/vmlinux format c
 * keep the fields you read, and keep each section in alphabetical order. A type that
 * differs between kernels gets a second declaration with a ___suffix, which CO-RE ignores.
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

/* Basic types, including those that libbpf's helper headers expect. */
typedef signed char __s8;
typedef unsigned char __u8;
typedef short __s16;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __s8 s8;
typedef __u8 u8;
typedef __s16 s16;
typedef __u16 u16;
typedef __s32 s32;
typedef __u32 u32;
typedef __s64 s64;
typedef __u64 u64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false = 0,
	true = 1 };

typedef u8 blk_status_t;
typedef u32 blk_opf_t;
typedef u32 dev_t;
typedef int pid_t;
typedef u32 req_flags_t;
typedef u64 sector_t;
typedef unsigned short umode_t;

/* BPF's user interface (uapi/linux/bpf.h). */
enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_EXIST = 2,
};

enum {
	BPF_F_NO_PREALLOC = 1,
};

enum {
	BPF_RB_NO_WAKEUP = 1,
};

enum {
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_HASH = 5,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

struct bpf_raw_tracepoint_args {
	__u64 args[0];
};

struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

/* Kernel types. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

struct bio;

struct block_device_operations {
	void (*submit_bio)(struct bio *);
};

struct gendisk {
	int major;
	int first_minor;
	char disk_name[32];
	const struct block_device_operations *fops;
	u64 diskseq;
};

struct block_device {
	struct gendisk *bd_disk;
	dev_t bd_dev;
};

struct bvec_iter {
	unsigned int bi_size;
};

struct blkcg_gq {
	struct blkcg *blkcg;
};

struct bio {
	struct block_device *bi_bdev;
	blk_opf_t bi_opf;
	struct bvec_iter bi_iter;
	struct blkcg_gq *bi_blkg; /* with CONFIG_BLK_CGROUP */
};

enum req_flag_bits {
	__REQ_META = 12,
	__REQ_BACKGROUND = 20,
};

/* Named like this from 6.1 on; the values used here are older. */
enum req_op {
	REQ_OP_READ = 0,
	REQ_OP_WRITE = 1,
	REQ_OP_FLUSH = 2,
	REQ_OP_DISCARD = 3,
	REQ_OP_ZONE_APPEND = 7,
	REQ_OP_DRV_IN = 34,
};

struct request_queue {
	struct gendisk *disk;
};

enum mq_rq_state {
	MQ_RQ_IDLE = 0,
	MQ_RQ_IN_FLIGHT = 1,
	MQ_RQ_COMPLETE = 2,
};

struct request {
	struct request_queue *q;
	blk_opf_t cmd_flags;
	req_flags_t rq_flags;
	unsigned int __data_len;
	sector_t __sector;
	struct bio *bio;
	struct block_device *part;
	u64 start_time_ns;
	u64 io_start_time_ns;
	unsigned short nr_phys_segments;
	enum mq_rq_state state;
};

/* A member from 6.11 on. */
struct queue_limits {
	unsigned int features;
};

/* Bit numbers of request.rq_flags, an enum from 6.11 on, without a name at first (still in 6.12);
 * before, macros with other values.
 */
enum rqf_flags {
	__RQF_FLUSH_SEQ = 1,
	__RQF_IO_STAT = 8,
};

/* Control groups. */
typedef struct {
	unsigned int val;
} kuid_t;

struct kernfs_iattrs {
	kuid_t ia_uid;
};

struct kernfs_node {
	struct kernfs_node *__parent; /* from 6.15 on */
	const char *name;
	umode_t mode;
	u64 id;
	struct kernfs_iattrs *iattr;
};

struct kernfs_node___old {
	struct kernfs_node *parent;
};

struct cgroup {
	int level;
	struct kernfs_node *kn;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
};

struct blkcg {
	struct cgroup_subsys_state css;
};

/* Tasks, files and sockets. */
struct bpf_local_storage;

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

struct files_struct {
	struct fdtable *fdt;
};

struct in6_addr {
	union {
		__u8 u6_addr8[16];
	} in6_u;
};

struct inode {
	umode_t i_mode;
	long unsigned int i_ino;
};

struct file {
	unsigned int f_flags;
	struct inode *f_inode;
	void *private_data;
};

struct iovec {
	void *iov_base;
};

struct ns_common {
	unsigned int inum;
};

struct pid_namespace {
	struct ns_common ns;
};

struct upid {
	int nr;
	struct pid_namespace *ns;
};

struct pid {
	unsigned int level;
	struct upid numbers[0];
};

#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r10;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long ax;
	unsigned long orig_ax;
};
#elif defined(__TARGET_ARCH_arm64)
struct pt_regs {
	u64 regs[31];
	s32 syscallno;
};
#else
struct pt_regs; /* exporters/agent/bpf/arch.h has both */
#endif

struct sched_info {
	unsigned long long run_delay;
	unsigned long long last_arrival;
};

typedef struct {
	int counter;
} atomic_t;

typedef struct {
	long unsigned int sig[1];
} sigset_t;

struct sigpending {
	sigset_t signal;
};

struct signal_struct {
	atomic_t live;
	struct sigpending shared_pending;
};

struct sock_common {
	__be32 skc_daddr;
	__be32 skc_rcv_saddr;
	__be16 skc_dport;
	__u16 skc_num;
	short unsigned int skc_family;
	struct in6_addr skc_v6_daddr;
	struct in6_addr skc_v6_rcv_saddr;
};

struct socket;

typedef struct {
	int owned;
} socket_lock_t;

struct sock {
	struct sock_common __sk_common;
	socket_lock_t sk_lock;
	u16 sk_type;
	struct socket *sk_socket;
};

struct sk_buff {
	struct sock *sk;
};

struct socket {
	struct file *file;
	struct sock *sk;
};

struct socket_alloc {
	struct socket socket;
	struct inode vfs_inode;
};

struct sched_entity {
	u64 sum_exec_runtime;
};

struct task_io_accounting {
	u64 syscr;
};

struct task_struct {
	unsigned int __state;
	int on_cpu;
	struct sched_entity se;
	struct sched_info sched_info;
	int exit_state;
	unsigned int in_iowait : 1;
	pid_t pid;
	pid_t tgid;
	void *mm;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	unsigned long nivcsw;
	u64 start_boottime;
	char comm[16];
	struct files_struct *files;
	struct signal_struct *signal;
	struct task_io_accounting ioac;
	struct bpf_local_storage *bpf_storage;
};

struct unix_address {
	int len;
};

struct unix_sock {
	struct sock sk;
	struct unix_address *addr;
};

struct user_msghdr {
	struct iovec *msg_iov;
};

/* Iterators. */
struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
	u64 session_id;
	u64 seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
