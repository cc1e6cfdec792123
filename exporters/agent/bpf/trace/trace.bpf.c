//go:build ignore

/* Block requests for the collector `trace`: each is reported once, at its end, with who made it, when the driver
 * got it, and where it is on its device; and while the end is under way, which wakes whoever waited for it, the
 * request is noted in trace_completing, where query's task_waking reads it.
 *
 * A request's end is from block_rq_complete, which comes before its bios' ends and so before the wakes, to
 * block_io_done (Linux 6.5), which comes after, or before that to the ends of the functions around.
 *
 * Not reported: passthrough commands; requests of queues with queue/iostats=0, which have no block_io_done, so
 * that a wait for one has no known end. */
#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "../../../bpf/request.h"
#include "../arch.h"
#include "../trace.h"

char LICENSE[] SEC("license") = "GPL";

#define NO_OFFSET (~0ULL)
#define SECTOR 512

/* Who has made a request, from when its first bio got one. */
struct origin {
	u32 pid;
	u32 tgid;
	u64 call_offset;
};

/* Least recently used ones make room: a bio that is merged to the front of its request hides the one before. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct bio *);
	__type(value, struct origin);
} origins SEC(".maps");

/* A request that the driver has. */
struct issued {
	u64 at;
	u64 offset;
	u32 size;
	u32 flushes; /* the kernel makes flushes of the device for it, before or after */
	struct origin origin;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct request *);
	__type(value, struct issued);
} requests SEC(".maps");

/* Where in its file the current task's call reads or writes, if the call has an offset. */
static __always_inline u64 call_offset(struct task_struct *task)
{
	if (!task->mm)
		return NO_OFFSET;
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);
	int nr = SYSCALL_NR(regs);
	if (IS_CALL(nr, pread64) || IS_CALL(nr, pwrite64) || IS_CALL(nr, preadv) || IS_CALL(nr, pwritev) ||
		IS_CALL(nr, preadv2) || IS_CALL(nr, pwritev2))
		return ARG4(regs);
	return NO_OFFSET;
}

SEC("tp_btf/block_getrq")
int BPF_PROG(trace_request_made, struct bio *bio)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct origin o = {.pid = task->pid, .tgid = task->tgid, .call_offset = call_offset(task)};
	bpf_map_update_elem(&origins, &bio, &o, BPF_ANY);
	return 0;
}

static __always_inline void take_origin(struct request *rq, struct origin *o)
{
	struct bio *bio = rq->bio;
	struct origin *known = bio ? bpf_map_lookup_elem(&origins, &bio) : NULL;
	o->call_offset = NO_OFFSET;
	if (!known)
		return;
	*o = *known;
	bpf_map_delete_elem(&origins, &bio);
}

static __always_inline u32 flush_sequence(void)
{
	return rq_flag(__RQF_FLUSH_SEQ, 1U << 4);
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(trace_request_issued, struct request *rq)
{
	/* Apart from rq, whose type the verifier of Linux 6.1 forgets where it is read from memory again. */
	struct request *key = rq;
	/* One that the driver got before and gave back keeps its first time. */
	struct issued *before = bpf_map_lookup_elem(&requests, &key);
	if (before && rq->start_time_ns && before->at >= rq->start_time_ns)
		return 0;
	struct issued i = {.at = bpf_ktime_get_ns(), .offset = rq->__sector * SECTOR, .size = rq->__data_len, .flushes = rq->rq_flags & flush_sequence()};
	take_origin(rq, &i.origin);
	bpf_map_update_elem(&requests, &key, &i, BPF_ANY);
	return 0;
}

/* An end is void after so many ns: its own end was not reported, because its task was moved. */
#define STALE 1000000000ULL

static __always_inline void completes(struct request *rq, u64 now)
{
	u32 zero = 0;
	struct completing *c = bpf_map_lookup_elem(&trace_completing, &zero);
	if (!c)
		return;
	u32 i = c->request[0] && c->end[0] + STALE > now;
	if (!i)
		c->request[1] = 0;
	c->request[i] = (u64)rq;
	c->end[i] = now;
	c->task[i] = (u64)bpf_get_current_task_btf();
}

static __always_inline int completed(u64 rq)
{
	u32 zero = 0;
	struct completing *c = bpf_map_lookup_elem(&trace_completing, &zero);
	if (!c)
		return 0;
	for (u32 i = 0; i < 2; i++)
		if (c->request[i] == rq)
			c->request[i] = 0;
	return 0;
}

static __always_inline u32 device_of(struct request *rq)
{
	struct gendisk *disk = rq->q->disk;
	return disk->major << 20 | disk->first_minor;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(trace_request_ends, struct request *rq, blk_status_t error, unsigned int nr_bytes)
{
	u32 op = rq->cmd_flags & REQ_OP_MASK;
	/* The first end of a request with a flush of its own before or after is not its last; the flush is marked,
	 * too. */
	if (op >= REQ_OP_DRV_IN || nr_bytes < rq->__data_len || (op != REQ_OP_FLUSH && rq->rq_flags & flush_sequence()))
		return 0;
	u64 now = bpf_ktime_get_ns();
	u64 start = rq->start_time_ns;
	struct request *key = rq;
	struct issued *known = bpf_map_lookup_elem(&requests, &key), i = {};
	if (known) {
		i = *known;
		bpf_map_delete_elem(&requests, &key);
	}
	if (!known || i.at < start) {
		/* A flush alone, which another request does for it; or it was there before the programs. */
		i.at = 0;
		take_origin(rq, &i.origin);
		i.offset = rq->__sector * SECTOR;
		i.size = nr_bytes;
	}
	struct trace_event *e = trace_begin(TRACE_REQUEST, start ? start : i.at, now);
	if (e) {
		e->woken_or_issued = i.at;
		e->request = (u64)rq;
		e->offset = i.offset;
		e->call_offset = i.origin.call_offset;
		e->size = i.size;
		e->owner = device_of(rq);
		e->pid = i.origin.pid;
		e->tgid = i.origin.tgid;
		e->subtype = op;
		e->flags = (error ? TRACE_FAILED : 0) | (i.flushes ? TRACE_FLUSHES : 0);
		trace_submit(e);
	}
	/* The device's own flush wakes nobody: those who wait for it have requests of their own. */
	if (start && op != REQ_OP_FLUSH)
		completes(rq, now);
	return 0;
}

SEC("raw_tp/block_io_done")
int BPF_PROG(trace_request_done, u64 rq)
{
	return completed(rq);
}

/* Before Linux 6.5. */
SEC("fexit/blk_update_request")
int BPF_PROG(trace_request_updated, struct request *rq, blk_status_t error, unsigned int nr_bytes)
{
	return completed((u64)rq);
}

SEC("fexit/blk_mq_end_request_batch")
int BPF_PROG(trace_batch_done)
{
	u32 zero = 0;
	struct completing *c = bpf_map_lookup_elem(&trace_completing, &zero);
	u64 task = (u64)bpf_get_current_task_btf();
	for (u32 i = 0; c && i < 2; i++)
		if (c->task[i] == task)
			c->request[i] = 0;
	return 0;
}
