/* The histograms of blkio and how they reach ebpf_exporter.
 *
 * ebpf_exporter wants one map entry for each bucket and sum. Counting there directly takes
 * six hash lookups for each I/O. So each CPU counts into one record for each device and operation,
 * found with one lookup, and a timer adds what is new to the exported maps four times a
 * second. Nothing is approximated: a count is at most a quarter of a second late.
 *
 * Records of single CPUs are bounded in number, whatever devices and CPUs there are. Beyond the bound
 * the CPUs count together into one record for each device and operation, with atomic additions. The
 * timer frees a CPU's record that has counted nothing for ten minutes, be it that the device is
 * gone or that another CPU now completes its requests.
 */
#ifndef BLKIO_HISTOGRAMS_H
#define BLKIO_HISTOGRAMS_H

#include "disk.h"
#include "slots.h"

#define EXPORT_EVERY_NS 250000000ULL

/* Devices by name: 512 volumes, and as many disks or paths below them. Names come again when devices
 * do, so this bounds the devices attached at a time, not those of a node's life.
 */
#define MAX_DEVICES 1024

/* Records of single CPUs. Memory is taken as they come, 1.1 KiB each: at most 18 MB. */
#define MAX_CPU_RECORDS 16384

/* Records that CPUs share: each device's five operations, at most 6 MB. */
#define MAX_SHARED_RECORDS (MAX_DEVICES * 5)

/* Exported entries of a histogram: 41 for each device and operation if all of its slots are in
 * use, mostly a dozen. This is room for 512 volumes with all slots of four operations in use, or for
 * MAX_DEVICES with 25 of five.
 */
#define MAX_ENTRIES 131072

/* Exports without anything new, until a CPU's record is retired: ten minutes. */
#define RETIRE_AFTER 2400

/* Exports from then until it is freed. What found it before has counted by then. */
#define FREE_AFTER 8

/* In the place of a CPU in the key of a record that CPUs share. */
#define SHARED_CPU 0xffff

#define CLOCK_MONOTONIC 1

/* Label reason of blkio_dropped_total; blkio.yaml has the names. */
enum reason {
	DROP_RECORD,
	DROP_ENTRY,
	DROP_ISSUE,
	DROP_BIO,
	DROP_RETRY,
	DROP_REASONS,
};

/* Key of records and of all exported series. Its size is a multiple of four, which the
 * kernel's hash function is fastest with.
 */
struct key {
	char device[BLKIO_NAME_LEN];
	u8 op;
	u8 slot; /* of an exported histogram, else 0 */
	u16 cpu; /* of a record, SHARED_CPU for all, else 0 */
};

#define EXPORTED(name, entries) \
	struct { \
		__uint(type, BPF_MAP_TYPE_HASH); \
		__uint(max_entries, entries); \
		__uint(map_flags, BPF_F_NO_PREALLOC); \
		__type(key, struct key); \
		__type(value, u64); \
	} name SEC(".maps")

/* From a request's start to its hand-over to the driver. */
EXPORTED(blkio_queue_seconds, MAX_ENTRIES);
/* From there to its completion. */
EXPORTED(blkio_device_seconds, MAX_ENTRIES);
/* From start to completion: the two others' sum, request by request. */
EXPORTED(blkio_total_seconds, MAX_ENTRIES);

/* Requests counted in blkio_total_seconds alone, because their hand-over was not stamped:
 * count of total = count of device + this, for each device and operation.
 */
EXPORTED(blkio_unsplit_total, MAX_SHARED_RECORDS);

/* How often requests came back from driver or device undone, and went into the queue again. */
EXPORTED(blkio_retries_total, MAX_SHARED_RECORDS);

/* What was lost, by reason: record, a request without room for a record of its device and operation; entry, an
 * observation of one histogram without room in the exported map; issue, a request's hand-over stamp (the request
 * counts as unsplit); bio, a bio of a device without requests; retry, one that is not counted, or the first hand-over
 * of a request that is retried (its attempts before the last one count as queue).
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, DROP_REASONS);
	__type(key, u32);
	__type(value, u64);
} blkio_dropped_total SEC(".maps");

/* What was counted of one device and operation. A CPU's own record is written by that CPU alone, and
 * only the timer compares with what it exported, so neither needs atomic operations.
 */
struct counts {
	u64 requests;
	u64 unsplit;
	u64 queue_ns, device_ns, total_ns;
	u32 queue[BLKIO_SLOTS], device[BLKIO_SLOTS], total[BLKIO_SLOTS];
};

struct record {
	/* 0 while the record is in use; then the number of exports since it was retired, and nobody
	 * counts in it any more. Beside now.requests, which every request touches.
	 */
	u32 retired;
	u32 idle; /* exports without anything new */
	struct counts now, exported;
	u64 requests_before; /* now.requests at the last export */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_CPU_RECORDS + MAX_SHARED_RECORDS);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct key);
	__type(value, struct record);
} records SEC(".maps");

/* How many of the records are of single CPUs. */
u32 cpu_records;

/* Their bound, and how long one may be idle; other values are set by tests alone, before loading. */
const volatile u32 max_cpu_records = MAX_CPU_RECORDS;
const volatile u32 retire_after = RETIRE_AFTER;

static const struct record empty_record;

struct export_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct export_timer);
} export_timers SEC(".maps");

/* Whether the timer runs: it can only be started by a program, so the first I/O does. */
bool exporting;

/* Time spent in the timer, which the kernel's BPF statistics leave out; for the benchmark. */
u64 export_ns;

static __always_inline void drop(u32 reason, u64 n)
{
	u64 *count = bpf_map_lookup_elem(&blkio_dropped_total, &reason);

	if (count)
		*count += n;
}

/* add_to adds n to an exported entry and reports whether there was room for it. */
static __always_inline bool add_to(void *map, struct key *key, u64 n)
{
	u64 *value = bpf_map_lookup_elem(map, key);

	if (!value)
		return !bpf_map_update_elem(map, key, &n, BPF_ANY);
	*value += n;
	return true;
}

/* export_histogram adds to the map of histogram name what record has counted since. */
#define export_histogram(name, record, key) \
	do { \
		u64 sum = record->now.name##_ns; \
\
		for (u32 i = 0; i < BLKIO_SLOTS; i++) { \
			u32 count = record->now.name[i]; \
			u32 fresh = count - record->exported.name[i]; \
\
			if (!fresh) \
				continue; \
			record->exported.name[i] = count; \
			(key)->slot = i; \
			if (!add_to(&blkio_##name##_seconds, key, fresh)) \
				drop(DROP_ENTRY, fresh); \
		} \
		(key)->slot = BLKIO_SLOT_SUM; \
		if (sum != record->exported.name##_ns) \
			add_to(&blkio_##name##_seconds, key, sum - record->exported.name##_ns); \
		record->exported.name##_ns = sum; \
	} while (0)

static long export_record(void *map, const struct key *from, struct record *record, void *ctx)
{
	u64 requests = record->now.requests, unsplit = record->now.unsplit;
	struct key key;

	/* Once more after the last change: another CPU's stores may be seen in any order. */
	if (requests == record->exported.requests && !record->retired) {
		if (from->cpu != SHARED_CPU && ++record->idle >= retire_after)
			record->retired = 1;
		return 0;
	}
	record->idle = 0;
	record->exported.requests = record->requests_before;
	record->requests_before = requests;

	key = *from;
	key.cpu = 0;
	export_histogram(queue, record, &key);
	export_histogram(device, record, &key);
	export_histogram(total, record, &key);
	if (unsplit != record->exported.unsplit) {
		key.slot = 0;
		add_to(&blkio_unsplit_total, &key, unsplit - record->exported.unsplit);
		record->exported.unsplit = unsplit;
	}
	if (record->retired && ++record->retired > FREE_AFTER) {
		key = *from;
		if (!bpf_map_delete_elem(&records, &key))
			__sync_fetch_and_add(&cpu_records, -1);
	}
	return 0;
}

static int export_all(void *map, u32 *key, struct export_timer *timer)
{
	u64 start = bpf_ktime_get_ns();

	bpf_for_each_map_elem(&records, export_record, NULL, 0);
	export_ns += bpf_ktime_get_ns() - start;
	bpf_timer_start(&timer->timer, EXPORT_EVERY_NS, 0);
	return 0;
}

/* start_exporting is for typed programs: the kernel keeps timers' maps from raw tracepoints. */
static __always_inline void start_exporting(void)
{
	struct export_timer *timer;
	u32 zero = 0;

	if (exporting)
		return;
	timer = bpf_map_lookup_elem(&export_timers, &zero);
	if (!timer)
		return;
	/* Two CPUs may get here together: the second one's calls do no harm. */
	bpf_timer_init(&timer->timer, &export_timers, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&timer->timer, export_all);
	if (!bpf_timer_start(&timer->timer, EXPORT_EVERY_NS, 0))
		exporting = true;
}

/* record_of returns the record to count in under key, whose cpu it sets, NULL if there is no room. */
static __always_inline struct record *record_of(struct key *key)
{
	struct record *record;

	key->cpu = bpf_get_smp_processor_id();
	record = bpf_map_lookup_elem(&records, key);
	if (record && !record->retired)
		return record;
	if (!record && cpu_records < max_cpu_records) {
		if (!bpf_map_update_elem(&records, key, &empty_record, BPF_NOEXIST))
			__sync_fetch_and_add(&cpu_records, 1);
		record = bpf_map_lookup_elem(&records, key);
		if (record)
			return record;
	}
	key->cpu = SHARED_CPU;
	record = bpf_map_lookup_elem(&records, key);
	if (record)
		return record;
	bpf_map_update_elem(&records, key, &empty_record, BPF_NOEXIST);
	record = bpf_map_lookup_elem(&records, key);
	if (!record)
		drop(DROP_RECORD, 1);
	return record;
}

/* add adds n to a number of a record, which others may do, too, if it is a shared one. */
#define add(shared, number, n) \
	do { \
		if (shared) \
			__sync_fetch_and_add(&(number), n); \
		else \
			(number) += n; \
	} while (0)

/* observe counts one value of the histogram name. */
#define observe(shared, counts, name, ns) \
	do { \
		add(shared, (counts)->name[blkio_slot(ns)], 1); \
		add(shared, (counts)->name##_ns, ns); \
	} while (0)

#endif
