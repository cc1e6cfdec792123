//go:build ignore

/* Block requests by disk and by the cgroup that the kernel charges them to. A bio carries that cgroup through LVM, md,
 * encryption and loop devices down to the disk's request, on cgroup v1 and v2 alike. On v2, ext4, XFS and Btrfs charge
 * writeback to the cgroup that made the pages dirty; elsewhere it is the root's.
 *
 * One program at block_rq_complete, which comes before a request's bios end, counts what /proc/diskstats counts:
 * requests once, at their last completion, bytes as they complete. Queues with queue/iostats=0 are left out there and
 * here. */
#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "../kernel.h"
#include "../../../bpf/request.h"
#include "../../../blockio/disk.h"

char LICENSE[] SEC("license") = "GPL";

/* How many pairs of a disk and a cgroup there are at once, and how many cgroups. The agent removes those that are idle.
 * Requests for which there is no room go to SOURCE_OTHER. */
#define MAX_USAGES 16384
#define MAX_GROUPS 8192

/* The levels below a hierarchy's root whose names are kept, and bytes of each. A kubelet's own root, kubepods, the
 * class of service and the pod are four; a pod's name has 65 bytes. Where a path is deeper than MAX_DEPTH, nothing of
 * it is known. */
#define LEVELS 6
#define NAME_LEN 96
#define MAX_DEPTH 64

/* What a request is from. Only those of the root cgroup, which has the kernel's own, differ by what they are for. */
enum source {
	SOURCE_CGROUP,    /* another cgroup than the root */
	SOURCE_ROOT,      /* the root cgroup: kernel threads, and processes in no other cgroup */
	SOURCE_METADATA,  /* the root cgroup: a file system's metadata and journal (REQ_META) */
	SOURCE_WRITEBACK, /* the root cgroup: background writeback (REQ_BACKGROUND) */
	SOURCE_OTHER,     /* a cgroup that found no room */
};

struct usage_key {
	u64 cgroup; /* 0 but for SOURCE_CGROUP */
	u32 source;
	u32 unused;
	char device[BLKIO_NAME_LEN];
};

struct usage {
	u64 requests;
	u64 bytes;
	u64 ns; /* in driver and device; where the kernel does not stamp the hand-over, in the queue before it, too */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_USAGES);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct usage_key);
	__type(value, struct usage);
} usages SEC(".maps");

/* The path of a cgroup, below the root, as far as only root can have made and named it: a cgroup that another user owns
 * has the name of the one above. */
struct group {
	u64 node; /* while the path is put together: the cgroup at hand */
	u32 levels;
	u32 unused;
	char names[LEVELS][NAME_LEN]; /* what is behind a name's end is none of it */
};

/* Paths by cgroup, made with its first request, so that they outlive the cgroup. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_GROUPS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u64);
	__type(value, struct group);
} groups SEC(".maps");

/* Where a path is put together. The kernel does not run a program within itself on one CPU. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct group);
} scratch SEC(".maps");

/* Requests that could not be counted as their cgroup's, by enum lost. */
enum lost {
	LOST_USAGE,  /* no room in usages: in SOURCE_OTHER */
	LOST_GROUP,  /* no room in groups: counted, and the path is not known */
	LOST_ALL,    /* not even room for SOURCE_OTHER: not counted */
	LOST_CHARGE, /* charged to no cgroup: not counted */
	LOSSES,
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, LOSSES);
	__type(key, u32);
	__type(value, u64);
} losses SEC(".maps");

/* Keep the types in the object file, from where the agent takes them. */
const enum source *unused_source __attribute__((unused));
const enum lost *unused_lost __attribute__((unused));

static __always_inline void count_loss(u32 reason)
{
	u64 *n = bpf_map_lookup_elem(&losses, &reason);

	if (n)
		(*n)++;
}

static __always_inline struct kernfs_node *above(struct kernfs_node *node)
{
	struct kernfs_node___old *old = (void *)node;

	if (bpf_core_field_exists(node->__parent))
		return read_field(node, __parent);
	return read_field(old, parent);
}

/* Whether only root may rename a cgroup, enter it or make others in it. */
static __always_inline bool only_root(struct kernfs_node *node)
{
	struct kernfs_iattrs *attributes = read_field(node, iattr);

	return !(read_field(node, mode) & 022) && (!attributes || !read_field(attributes, ia_uid.val));
}

/* A string of the kernel's, which ends within the room for it. */
static __always_inline void copy_name(char *to, u64 from)
{
	if (!has_cast()) {
		bpf_probe_read_kernel_str(to, NAME_LEN, (void *)from);
		return;
	}
	/* A loop that is entered in its middle is none for 6.1's verifier. */
#pragma unroll
	for (u32 i = 0; i < NAME_LEN; i += sizeof(u64))
		*(u64 *)(to + i) = read_pointer(from + i);
	to[NAME_LEN - 1] = 0;
}

/* keep_name keeps the name of a path's level, and reports whether others than root can have given it. */
__noinline int keep_name(struct group *g, u32 level)
{
	struct kernfs_node *node;

	if (!g || level >= LEVELS)
		return 0;
	node = (void *)g->node;
	copy_name(g->names[level], (u64)read_field(node, name));
	return !only_root(node);
}

/* learn keeps the path of a cgroup. */
static __always_inline void learn(u64 id, struct kernfs_node *node, u32 level)
{
	u32 zero = 0;
	struct group *g = bpf_map_lookup_elem(&scratch, &zero);

	if (!g)
		return;
	__builtin_memset(g, 0, sizeof(*g));
	if (level < MAX_DEPTH)
		g->levels = level < LEVELS ? level : LEVELS;
	for (u32 i = 0; i < MAX_DEPTH && level && node; i++) {
		level--;
		g->node = (u64)node;
		if (keep_name(g, level))
			g->levels = level;
		node = above(node);
	}
	g->node = 0;
	if (bpf_map_update_elem(&groups, &id, g, BPF_NOEXIST) && !bpf_map_lookup_elem(&groups, &id))
		count_loss(LOST_GROUP);
}

/* The entry of a key, which is made if there is none; NULL if there is no room. */
static __always_inline struct usage *made(struct usage_key *key)
{
	struct usage none = {};

	bpf_map_update_elem(&usages, key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&usages, key);
}

static __always_inline u32 source_of(u32 level, u32 opf)
{
	if (level)
		return SOURCE_CGROUP;
	if (opf & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_META))
		return SOURCE_METADATA;
	if (opf & 1U << bpf_core_enum_value(enum req_flag_bits, __REQ_BACKGROUND))
		return SOURCE_WRITEBACK;
	return SOURCE_ROOT;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(disk_request_ends, struct request *rq, blk_status_t error, unsigned int nr_bytes)
{
	u32 opf = rq->cmd_flags, flags = rq->rq_flags;
	/* A request with a flush of its own ends twice; at the first end its data is written. */
	bool last = nr_bytes >= rq->__data_len && !(flags & rq_flag(__RQF_FLUSH_SEQ, 1U << 4));
	u64 begun = rq->io_start_time_ns ? rq->io_start_time_ns : rq->start_time_ns;
	struct usage_key key = {}, other;
	struct kernfs_node *node;
	struct cgroup *group;
	struct usage *usage;
	u64 now;
	u32 level;

	if (!(flags & rq_flag(__RQF_IO_STAT, 1U << 13)) || (opf & REQ_OP_MASK) >= REQ_OP_DRV_IN)
		return 0;
	blkio_disk_name(key.device, rq->q->disk);
	blkio_nvme_head(key.device);
	group = rq->bio->bi_blkg->blkcg->css.cgroup; /* NULL if one of these is: then it is nobody's */
	if (!group) {
		if (last)
			count_loss(LOST_CHARGE);
		return 0;
	}
	level = group->level;
	node = group->kn;
	key.source = source_of(level, opf);
	if (level)
		key.cgroup = node->id;
	usage = bpf_map_lookup_elem(&usages, &key);
	if (!usage) {
		if (level && !bpf_map_lookup_elem(&groups, &key.cgroup))
			learn(key.cgroup, node, level);
		/* The entry for those that find no room is there before there is none. */
		other = key;
		other.cgroup = 0;
		other.source = SOURCE_OTHER;
		made(&other);
		usage = made(&key);
		if (!usage) {
			count_loss(LOST_USAGE);
			usage = bpf_map_lookup_elem(&usages, &other);
		}
	}
	if (!usage) {
		count_loss(LOST_ALL);
		return 0;
	}
	__sync_fetch_and_add(&usage->bytes, nr_bytes);
	if (!last)
		return 0;
	__sync_fetch_and_add(&usage->requests, 1);
	now = bpf_ktime_get_ns();
	if (now > begun)
		__sync_fetch_and_add(&usage->ns, now - begun);
	return 0;
}
