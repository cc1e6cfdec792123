//go:build ignore

/* Latency of block I/O by device and operation, split into the time before the driver got a
 * request (queue) and the time in driver and device (device), for ebpf_exporter (blkio.yaml).
 * And requests that came back from there undone, to be retried.
 *
 * Almost all of it hangs on one hook, the end of a request, because the kernel
 * itself stamps a request when it is made and when it is given to the driver: block_io_done,
 * and before Linux 6.5, which has none, block_rq_complete. The other hooks
 * return at once unless a device needs them:
 *   - block_rq_complete, for a device's own flushes, which have no block_io_done,
 *   - block_rq_issue, for queues where the kernel omits the second stamp,
 *   - block_rq_requeue, for requests that are retried: the kernel sets the second stamp anew then,
 *   - block_bio_queue and block_bio_complete, for devices without requests (dm, md, zram, drbd).
 *
 * What is counted, and when:
 *   - a request once, at its last completion. Requests that carry their own flush
 *     (REQ_PREFLUSH, emulated REQ_FUA) complete twice, see block/blk-flush.c; the first is
 *     skipped. Their queue time includes the flush before the data, their device time the
 *     flush after it.
 *   - op "flush": a request for nothing but a flush, what a database's fsync waits for. The
 *     kernel answers several of them with one flush of the device; that one gives the device
 *     time of each and is not counted itself. /proc/diskstats counts these among the writes.
 *   - a request that is retried, as after an error, a timeout or "busy": once as well. Its device
 *     time begins where the driver was given it first, as all of what follows is the device's doing.
 *     What a driver refuses at once, having no room for it, still waits in the queue.
 *   - op "other": what is neither read, write, flush nor discard (write zeroes, secure
 *     erase, zone management).
 *   - not at all: passthrough commands (SCSI and NVMe administration), and requests of a queue with
 *     queue/iostats=0, whose stamps are not valid. Bio-based devices have no such stamps
 *     and are measured regardless.
 *
 * The total starts where /proc/diskstats starts: once the request has a tag. Waiting for a
 * tag, or for the writeback throttle, comes before it. It ends where theirs does, once the
 * handlers of the request's bios have run, which wake those who wait; before Linux 6.5 some
 * 5 us earlier, before these handlers.
 *
 * Not seen, as no program on a tracepoint can:
 *   - since 6.1, a completion in an interrupt that finds the program running on its CPU, a
 *     fraction of a microsecond (recursion_misses in bpftool prog);
 *   - for a millisecond or so, completions while another tracer attaches to or detaches from
 *     block_rq_complete (seen on 6.18: 1 to 26 requests, the same ones by every program on it);
 *   - completions in interrupts while something runs whose events the kernel gives to no program: in a
 *     Firecracker guest on 6.18 that is process 1, and at times the idle task of a CPU. There 0 to 0.02 %
 *     of 20,000 reads/s and 0.1 to 0.9 % of 400 I/Os/s were missed, slow ones among them. Any program on
 *     block_rq_complete and block_io_done misses the same ones without recursion_misses;
 *     /proc/diskstats, and fio's own count, have them.
 *
 * Needs Linux 5.15 (request_queue.disk) with BTF.
 */
#include "vmlinux.h"

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "histograms.h"
#include "request.h"

/* More requests than this are in flight only on very large machines. */
#define MAX_IN_FLIGHT 16384

/* Label op; blkio.yaml has the names. */
enum op {
	OP_READ,
	OP_WRITE,
	OP_FLUSH,
	OP_DISCARD,
	OP_OTHER,
};

/* The flush of a device that completed last on this CPU. The kernel completes the requests that
 * waited for it right afterwards, on the same CPU, with interrupts off (flush_end_io).
 */
struct device_flush {
	struct request_queue *q;
	u64 issued;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct device_flush);
} last_flush SEC(".maps");

/* Queues whose requests the kernel does not stamp at hand-over: it does so only where
 * something uses its block statistics (writeback throttling, bfq, kyber, iocost). This map and
 * the next are LRU, for the queues and requests of devices that are gone.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct request_queue *);
	__type(value, u8);
} unstamped_queues SEC(".maps");

/* Set with the first entry of unstamped_queues: until then nothing reads it. */
bool stamping;

/* Our own stamps for those queues. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_IN_FLIGHT);
	__type(key, struct request *);
	__type(value, u64);
} issued SEC(".maps");

/* What a driver has given back by then, and not as complete, it has refused: it had no room. */
#define REFUSED_WITHIN_NS 1000000

/* A request that is retried: when it was made, which distinguishes it from a later one in the same place, and when
 * its driver was given it first, 0 if that was not stamped.
 */
struct retried {
	u64 start;
	u64 issued;
};

/* Requests that are being retried. An entry goes when its request ends, or the next one in the same
 * place; those that stay are of devices which went with a request whose end was not seen.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, MAX_IN_FLIGHT);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct request *);
	__type(value, struct retried);
} retried SEC(".maps");

/* How many there are: while there is none nothing reads the map. */
u32 retrying;

/* Set by a test alone, before loading: no queue's requests count as stamped by the kernel. */
const volatile bool ignore_kernel_stamps = false;

/* Bios in flight on bio-based devices. LRU, as a driver that passes a bio on to a device
 * with requests makes its completion invisible here, and its entry stays behind.
 */
struct bio_start {
	u64 ns;
	struct key key;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, MAX_IN_FLIGHT);
	__type(key, struct bio *);
	__type(value, struct bio_start);
} bios SEC(".maps");

/* The tracepoint's type, which kernels that have it have, and the cast that gives a raw
 * tracepoint's argument its type, Linux 6.2.
 */
typedef void (*btf_trace_block_io_done)(void *, struct request *);
extern void *bpf_rdonly_cast(const void *obj, u32 btf_id) __ksym __weak;

/* has_io_done is known when the object is loaded: the branch not taken is not there. */
#define has_io_done() bpf_core_type_exists(btf_trace_block_io_done)

/* after returns the time from one stamp to a later one. The kernel takes some of its stamps
 * from a clock cached per task, so that they can lie a little before an earlier event's.
 */
static __always_inline u64 after(u64 earlier, u64 later)
{
	return later > earlier ? later - earlier : 0;
}

static __always_inline u8 op_of(u32 opf, bool empty)
{
	switch (opf & REQ_OP_MASK) {
	case REQ_OP_READ:
		return OP_READ;
	case REQ_OP_WRITE:
	case REQ_OP_ZONE_APPEND:
		return empty ? OP_FLUSH : OP_WRITE;
	case REQ_OP_DISCARD:
		return OP_DISCARD;
	}
	return OP_OTHER;
}

/* attempt_time returns when rq was given to its driver last, 0 if unknown. */
static __always_inline u64 attempt_time(struct request *rq)
{
	u64 *stamp, ns = ignore_kernel_stamps ? 0 : rq->io_start_time_ns;

	if (!stamping)
		return ns;
	stamp = bpf_map_lookup_elem(&issued, &rq);
	if (!stamp)
		return ns;
	if (!ns)
		ns = *stamp;
	bpf_map_delete_elem(&issued, &rq);
	return ns;
}

/* issue_time returns when rq, which has ended, was given to its driver first, 0 if unknown. */
static __always_inline u64 issue_time(struct request *rq)
{
	/* Apart from rq, whose type the verifier of Linux 6.12 forgets where it is read from memory again. */
	struct request *key = rq;
	u64 ns = attempt_time(rq);
	struct retried *first;

	if (!retrying)
		return ns;
	first = bpf_map_lookup_elem(&retried, &key);
	if (!first)
		return ns;
	if (first->start == rq->start_time_ns)
		ns = first->issued;
	if (!bpf_map_delete_elem(&retried, &key))
		__sync_fetch_and_add(&retrying, -1);
	return ns;
}

static __always_inline void stamp_from_now_on(struct request_queue *q)
{
	u8 yes = 1;

	bpf_map_update_elem(&unstamped_queues, &q, &yes, BPF_ANY);
	stamping = true;
}

/* device_flushed notes the completion of a device's own flush. */
static __always_inline void device_flushed(struct request *rq)
{
	struct device_flush *flush;
	u32 zero = 0;

	flush = bpf_map_lookup_elem(&last_flush, &zero);
	if (!flush)
		return;
	flush->q = rq->q;
	flush->issued = issue_time(rq);
	if (!flush->issued)
		stamp_from_now_on(rq->q);
}

/* flush_issue_time returns when the flush that answers rq was given to the driver, 0 if
 * unknown: rq itself never is.
 */
static __always_inline u64 flush_issue_time(struct request *rq)
{
	struct device_flush *flush;
	u32 zero = 0;

	flush = bpf_map_lookup_elem(&last_flush, &zero);
	return flush && flush->q == rq->q ? flush->issued : 0;
}

/* Whether the kernel keeps statistics of rq, and sets its stamps. */
static __always_inline bool has_io_stat(struct request *rq)
{
	return rq->rq_flags & rq_flag(__RQF_IO_STAT, 1U << 13);
}

/* Whether rq is a device's own flush, which has no statistics and is stamped. */
static __always_inline bool is_device_flush(struct request *rq)
{
	return (rq->cmd_flags & REQ_OP_MASK) == REQ_OP_FLUSH;
}

/* set_disk writes the name of rq's disk to name, which must be all zero. */
static __always_inline void set_disk(char *name, struct request *rq)
{
	blkio_disk_name(name, rq->q->disk);
	blkio_nvme_head(name);
}

/* done counts rq, which has ended. */
static __always_inline void done(struct request *rq)
{
	u32 opf = rq->cmd_flags, op = opf & REQ_OP_MASK;
	u32 flush_seq = rq_flag(__RQF_FLUSH_SEQ, 1U << 4);
	u64 now, start, issue, total, queue;
	struct record *record;
	struct counts *counts;
	struct key key = {};
	bool shared;

	if (!has_io_stat(rq) || (rq->rq_flags & flush_seq) || op >= REQ_OP_DRV_IN)
		return;

	now = bpf_ktime_get_ns();
	start = rq->start_time_ns;
	key.op = op_of(opf, !rq->nr_phys_segments);
	issue = key.op == OP_FLUSH ? flush_issue_time(rq) : issue_time(rq);
	set_disk(key.device, rq);

	record = record_of(&key);
	if (!record)
		return;
	counts = &record->now;
	shared = key.cpu == SHARED_CPU;
	total = after(start, now);
	observe(shared, counts, total, total);
	if (issue) {
		queue = after(start, issue);
		if (queue > total)
			queue = total;
		observe(shared, counts, queue, queue);
		observe(shared, counts, device, total - queue);
	} else {
		add(shared, counts->unsplit, 1);
		if (key.op != OP_FLUSH)
			stamp_from_now_on(rq->q);
	}
	add(shared, counts->requests, 1);
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(blkio_rq_complete, struct request *rq, blk_status_t error, unsigned int nr_bytes)
{
	start_exporting();
	if (is_device_flush(rq))
		device_flushed(rq);
	else if (!has_io_done() && nr_bytes >= rq->__data_len)
		done(rq);
	return 0;
}

/* A raw tracepoint, as a kernel that lacks this one refuses to load a typed one, and the others with it.
 * ebpf_exporter then only logs that it is not attached.
 */
SEC("raw_tp/block_io_done")
int BPF_PROG(blkio_io_done, struct request *arg)
{
	if (has_io_done())
		done(bpf_rdonly_cast(arg, bpf_core_type_id_kernel(struct request)));
	return 0;
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(blkio_rq_issue, struct request *rq)
{
	struct request_queue *q;
	u64 now;

	if (!stamping)
		return 0;
	q = rq->q;
	if (!bpf_map_lookup_elem(&unstamped_queues, &q))
		return 0;
	now = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&issued, &rq, &now, BPF_ANY))
		drop(DROP_ISSUE, 1);
	return 0;
}

/* count_retry counts that rq came back. */
static __always_inline void count_retry(struct request *rq)
{
	struct key key = {};
	u64 *count, zero = 0;

	key.op = is_device_flush(rq) ? OP_FLUSH : op_of(rq->cmd_flags, false);
	set_disk(key.device, rq);
	count = bpf_map_lookup_elem(&blkio_retries_total, &key);
	if (!count) {
		bpf_map_update_elem(&blkio_retries_total, &key, &zero, BPF_NOEXIST);
		count = bpf_map_lookup_elem(&blkio_retries_total, &key);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		drop(DROP_RETRY, 1);
}

/* A request goes back to its queue: refused by its driver, or tried and to be retried. */
SEC("tp_btf/block_rq_requeue")
int BPF_PROG(blkio_rq_requeue, struct request *rq)
{
	struct retried first = {}, *known;
	u32 state = rq->state;

	/* Refused before it was started, or not counted when it ends. */
	if (state == MQ_RQ_IDLE || (rq->cmd_flags & REQ_OP_MASK) >= REQ_OP_DRV_IN ||
		!(has_io_stat(rq) || is_device_flush(rq)))
		return 0;
	first.start = rq->start_time_ns;
	first.issued = attempt_time(rq);
	if (state != MQ_RQ_COMPLETE && (!first.issued || after(first.issued, bpf_ktime_get_ns()) < REFUSED_WITHIN_NS))
		return 0;
	count_retry(rq);
	known = bpf_map_lookup_elem(&retried, &rq);
	if (known && known->start == first.start)
		return 0;
	if (bpf_map_update_elem(&retried, &rq, &first, BPF_ANY))
		drop(DROP_RETRY, 1);
	else if (!known)
		__sync_fetch_and_add(&retrying, 1);
	return 0;
}

SEC("tp_btf/block_bio_queue")
int BPF_PROG(blkio_bio_queue, struct bio *bio)
{
	struct gendisk *disk = bio->bi_bdev->bd_disk;
	struct bio_start start = {};

	if (!disk->fops->submit_bio)
		return 0;
	blkio_disk_name(start.key.device, disk);
	/* NVMe multipath: the requests on the path are counted, under this disk's name. */
	if (blkio_is_nvme(start.key.device))
		return 0;
	start.key.op = op_of(bio->bi_opf, !bio->bi_iter.bi_size);
	start.ns = bpf_ktime_get_ns();
	if (bpf_map_update_elem(&bios, &bio, &start, BPF_ANY))
		drop(DROP_BIO, 1);
	return 0;
}

SEC("tp_btf/block_bio_complete")
int BPF_PROG(blkio_bio_complete, struct request_queue *q, struct bio *bio)
{
	struct bio_start *start = bpf_map_lookup_elem(&bios, &bio);
	struct record *record;
	struct counts *counts;
	struct key key;
	bool shared;
	u64 total;

	if (!start)
		return 0;
	total = after(start->ns, bpf_ktime_get_ns());
	key = start->key;
	bpf_map_delete_elem(&bios, &bio);

	record = record_of(&key);
	if (!record)
		return 0;
	counts = &record->now;
	shared = key.cpu == SHARED_CPU;
	/* Such a device is handed every bio at once: it has no queue of its own. */
	observe(shared, counts, total, total);
	observe(shared, counts, queue, 0);
	observe(shared, counts, device, total);
	add(shared, counts->requests, 1);
	start_exporting();
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
