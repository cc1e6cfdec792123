/* State of the programs that follow operations which the kernel itself reports, at the initiator of a storage network
 * and at its target: which disk or export they are for, what is under way, and what has ended. A wire's own header
 * (nvme.h, scsi.h) and its programs (nvme.bpf.c, iscsi.bpf.c) are built on it, each an object with maps of its own,
 * which user space reads alike.
 */
#ifndef __PLUMBLINE_FABRIC_H__
#define __PLUMBLINE_FABRIC_H__

#include "../operation.h"
#include "../uapi.h"

/* Indices of the map events; Go's names for them are in types.go. */
enum event {
	EVENT_UNMATCHED,      /* a completion without a beginning */
	EVENT_REPLACED,       /* a beginning in the place of one whose completion was not seen */
	EVENT_LOST_OPERATION, /* map operations full */
	EVENT_LOST_SERIES,    /* map latencies full */
	EVENT_OTHER,          /* map disks or exports full: counted under number 0 */
	EVENTS,
};

#define NQN_SIZE 224 /* 223 bytes at most, by the specification, and a zero */
#define ADDRESS_SIZE 64
#define SERVICE_SIZE 32

/* A namespace that a target here serves, on one of its ports; of SCSI a LUN, as the initiator numbers it. A
 * subsystem's serial number, which is random, or a number made of its name, distinguishes it from another one in
 * the same memory. */
struct export_key {
	u64 subsystem;
	u64 serial;
	u64 port;
	u32 namespace;
	u32 pad;
};

/* What user space has to know of it. */
struct export
{
	u32 number;
	u32 inner; /* the target's own number of a LUN */
	char nqn[NQN_SIZE];
	char address[ADDRESS_SIZE]; /* of iSCSI the connection's struct sockaddr, as it is */
	char service[SERVICE_SIZE]; /* of iSCSI the portal group, tpgt_1 */
};

/* A command without its completion, by the address of its request. */
struct operation {
	u64 start;      /* CLOCK_MONOTONIC, ns */
	u64 controller; /* the target's, 0 at the initiator; of a target in user space the LUN */
	u32 number;     /* of the disk or export */
	u32 bytes;
	u16 identifier; /* the target's: broken connections leave commands with no end; in user space: user_target.h */
	u8 op;          /* enum wire_op */
	u8 given_up;    /* if another command takes its place, it was given up: its end was not missed */
	u8 pad[4];
};

/* A controller, or an initiator's session, that a target here serves, by the address of its structure, which is
 * reused. */
struct controller {
	u64 seen;      /* when it was last seen */
	u64 since;     /* when it connected; 0 if that was not seen */
	u64 subsystem; /* as in export_key */
};

struct latency_key {
	u32 number;
	u8 op;
	u8 pad[3];
};

/* Sizes are the kernel's memory. Those given as 1 are set by user space before loading. */
/* The numbers of the disks that the initiator has, one for each path, by the kernel's own number of a disk (sysfs:
 * diskseq), which no other disk ever gets: names and structures are used again at once.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, u32);
} disks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct export_key);
	__type(value, struct export);
} exports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, struct controller);
} controllers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u64);
	__type(value, struct operation);
} operations SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC); /* 2 KB each */
	__uint(max_entries, 1);
	__type(key, struct latency_key);
	__type(value, struct latency);
} latencies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EVENTS);
	__type(key, u32);
	__type(value, u64);
} events SEC(".maps");

/* How many programs put exports together. */
#ifndef EXPORT_SCRATCH_SLOTS
#define EXPORT_SCRATCH_SLOTS 1
#endif

/* Room for each of them to do that: see ../README.md. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, EXPORT_SCRATCH_SLOTS);
	__type(key, u32);
	__type(value, struct export);
} scratch SEC(".maps");

/* Commands that were given up, by the number of the disk or export. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} unanswered SEC(".maps");

u32 last_number; /* the latest number handed out */
u64 attached;    /* since when all programs are there, by CLOCK_MONOTONIC; user space sets it */

/* Number of disks that user space excludes, such as those of this machine, and of commands that are for no disk. */
#define IGNORED 0xffffffff

static __always_inline void count(u32 event)
{
	u64 *n = bpf_map_lookup_elem(&events, &event);

	if (n)
		__sync_fetch_and_add(n, 1);
}

static __always_inline void give_up(u32 number)
{
	u64 one = 1, *n = bpf_map_lookup_elem(&unanswered, &number);

	if (!n && !bpf_map_update_elem(&unanswered, &number, &one, BPF_NOEXIST))
		return;
	n = bpf_map_lookup_elem(&unanswered, &number);
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		count(EVENT_LOST_SERIES);
}

/* A command takes the place of one that has not ended. */
static __always_inline void replaced(u64 request)
{
	struct operation *o = bpf_map_lookup_elem(&operations, &request);

	if (o && o->number == IGNORED)
		return;
	if (o && o->given_up && o->number)
		give_up(o->number);
	else
		count(EVENT_REPLACED);
}

static __always_inline void begins(u64 request, struct operation *o)
{
	/* An int: before Linux 6.4 the upper half of what the kernel returns is not the sign's. */
	int err = bpf_map_update_elem(&operations, &request, o, BPF_NOEXIST);

	if (err == -EEXIST) {
		replaced(request);
		err = bpf_map_update_elem(&operations, &request, o, BPF_ANY);
	}
	if (err)
		count(EVENT_LOST_OPERATION);
}

static __always_inline void operation_add(struct operation *o, bool failed)
{
	struct latency_key key = {.number = o->number, .op = o->op};
	struct latency *l = bpf_map_lookup_elem(&latencies, &key);

	if (!l) {
		bpf_map_update_elem(&latencies, &key, &no_latency, BPF_NOEXIST);
		l = bpf_map_lookup_elem(&latencies, &key);
	}
	if (l)
		latency_add(l, bpf_ktime_get_ns() - o->start, o->bytes, failed);
	else
		count(EVENT_LOST_SERIES);
}

static __always_inline void ends(u64 request, struct operation *o, bool failed)
{
	if (o->number != IGNORED)
		operation_add(o, failed);
	bpf_map_delete_elem(&operations, &request);
}

/* The number of the disk that a request is for, a new one at its first sight; IGNORED for requests that
 * have none, which are the controller's own. */
static __always_inline u32 disk_number(struct request *rq)
{
	struct gendisk *disk = BPF_CORE_READ(rq, q, disk);

	if (!disk)
		return IGNORED;
	u64 key = BPF_CORE_READ(disk, diskseq);
	u32 *known = bpf_map_lookup_elem(&disks, &key);
	if (known)
		return *known;
	u32 number = __sync_fetch_and_add(&last_number, 1) + 1;
	if (!bpf_map_update_elem(&disks, &key, &number, BPF_NOEXIST))
		return number;
	known = bpf_map_lookup_elem(&disks, &key); /* another CPU was faster, or the map is full */
	if (known)
		return *known;
	count(EVENT_OTHER);
	return 0;
}

/* Room for what is to be known of an export, with a number of its own. */
static __always_inline struct export *export_new(u32 scratch_slot)
{
	struct export *fresh = bpf_map_lookup_elem(&scratch, &scratch_slot);

	if (!fresh)
		return 0;
	__builtin_memset(fresh, 0, sizeof(*fresh));
	fresh->number = __sync_fetch_and_add(&last_number, 1) + 1;
	return fresh;
}

/* Enters it, and returns its number; another one if another CPU was faster. */
static __always_inline u32 export_enter(struct export_key *key, struct export *fresh)
{
	if (!bpf_map_update_elem(&exports, key, fresh, BPF_NOEXIST))
		return fresh->number;
	struct export *known = bpf_map_lookup_elem(&exports, key);
	if (known)
		return known->number;
	count(EVENT_OTHER);
	return 0;
}

/* Reports whether the request was made when all programs were attached. If the kernel does not report when, it may
 * have been before. */
static __always_inline bool begun_since(struct request *rq)
{
	return attached && BPF_CORE_READ(rq, start_time_ns) >= attached;
}

static __always_inline void controller_seen(void *controller, u64 subsystem, u64 now)
{
	u64 key = (u64)controller;
	struct controller *known = bpf_map_lookup_elem(&controllers, &key);

	if (known) {
		known->seen = now;
		return;
	}
	struct controller fresh = {.seen = now, .subsystem = subsystem};
	bpf_map_update_elem(&controllers, &key, &fresh, BPF_ANY);
}

/* Puts these types into the object's type information. Go's types are generated from it. */
const enum event *unused_event __attribute__((unused));
const enum wire_op *unused_op __attribute__((unused));

#endif
