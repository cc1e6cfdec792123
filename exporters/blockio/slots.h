/* Buckets of the blkio histograms: two an octave from 16 us to 8.6 s.
 *
 * Their upper bounds, inclusive as Prometheus wants them, are 2^14, 23/16 * 2^14, 2^15,
 * 23/16 * 2^15 ... 2^33 nanoseconds, and one more of 2^36 ns (69 s) for all that is slower:
 * ebpf_exporter cannot count into +Inf. 23/16 stands for the square root of two because
 * it is exact in integers and its bounds print as short decimals.
 *
 * The same bounds stand in blkio.yaml, found there by slot number; a test runs this
 * function in the kernel over all of them.
 */
#ifndef BLKIO_SLOTS_H
#define BLKIO_SLOTS_H

#define BLKIO_MIN_SHIFT 14 /* the first bound is 2^14 ns */
#define BLKIO_MAX_SHIFT 33 /* the last but one is 2^33 ns */

/* Slots 0 to BLKIO_SLOT_OVER count; BLKIO_SLOT_SUM holds the sum, in nanoseconds. */
#define BLKIO_SLOT_OVER (2 * (BLKIO_MAX_SHIFT - BLKIO_MIN_SHIFT) + 1)
#define BLKIO_SLOT_SUM (BLKIO_SLOT_OVER + 1)
#define BLKIO_SLOTS BLKIO_SLOT_SUM

/* blkio_slot returns the number of the first slot whose bound is not below ns. */
static __always_inline u32 blkio_slot(u64 ns)
{
	u32 log2 = BLKIO_MIN_SHIFT, top;

	if (ns <= 1ULL << BLKIO_MIN_SHIFT)
		return 0;
	if (ns > 1ULL << BLKIO_MAX_SHIFT)
		return BLKIO_SLOT_OVER;

	/* Bounds are inclusive: with one less, 2^k ns belongs to the octave that ends there. */
	ns--;
	top = ns >> BLKIO_MIN_SHIFT;
	if (top >> 16) {
		top >>= 16;
		log2 += 16;
	}
	if (top >> 8) {
		top >>= 8;
		log2 += 8;
	}
	if (top >> 4) {
		top >>= 4;
		log2 += 4;
	}
	if (top >> 2) {
		top >>= 2;
		log2 += 2;
	}
	log2 += top >> 1;

	/* The five leading bits select the half of the octave. */
	return 2 * (log2 - BLKIO_MIN_SHIFT) + 1 + ((ns >> (log2 - 4)) >= 23);
}

#endif
