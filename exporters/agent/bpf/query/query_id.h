/* Statements by query: by the identifier that the server itself gives to all statements of one form. No text
 * is read.
 *
 * Each server has as many entries, so that none takes another's. A query takes the first free one of a few that follow
 * from its identifier. One that finds none is in the server's sums alone. User space makes entries free: it writes
 * ENTRY_RETIRED, by which no program finds the entry any more, reads what was counted when all runs from before have
 * ended, and empties it. A query may then have two entries, which belong together. */
#ifndef __QUERY_QUERY_ID_H__
#define __QUERY_QUERY_ID_H__

#include "state.h"

#define ENTRY_TRIES 8
#define ENTRY_RETIRED (~0ULL) /* as an identifier, which no query has */

/* Set by user space before loading: each server's entries, a power of two; 0: queries are not distinguished. */
const volatile u32 query_entries;

/* Whose entry it is: an identifier, 0 or ENTRY_RETIRED; by server * query_entries + index. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} query_ids SEC(".maps");

/* A histogram of fewer slots than a command's, one for each power of two: those of native_histogram.h in eights. */
#define QUERY_SLOTS (NATIVE_SLOTS / 8 + 2)

static __always_inline u32 query_slot(u32 native)
{
	return (native + 7) / 8;
}

struct per_query {
	struct amounts all;
	u64 slots[QUERY_SLOTS];
};

/* What was counted there. Not per CPU, as that takes too much memory on large machines. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct per_query);
} queries SEC(".maps");

/* Keeps the type in the object file, from where the agent takes it. */
const struct per_query *unused_per_query __attribute__((unused));

/* Returns where the statements of a query are counted; NULL if there is no entry. */
static __always_inline struct per_query *query_of(u32 server, u64 id)
{
	if (id == ENTRY_RETIRED)
		return NULL;
	u32 hash = id * 0x9e3779b97f4a7c15ULL >> 32;
	for (u32 i = 0; i < ENTRY_TRIES; i++) {
		u32 key = server * query_entries + ((hash + i) & (query_entries - 1));
		u64 *owner = bpf_map_lookup_elem(&query_ids, &key);
		if (!owner)
			return NULL;
		u64 seen = *owner;
		if (!seen)
			seen = __sync_val_compare_and_swap(owner, 0, id) ?: id;
		if (seen == id)
			return bpf_map_lookup_elem(&queries, &key);
	}
	return NULL;
}

#endif
