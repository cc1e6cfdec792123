/* Slots of a Prometheus native histogram of schema 3 (eight buckets per power of two), for
 * durations in nanoseconds. Bucket i holds (2^((i-1)/8) s, 2^(i/8) s]; the upper bound is
 * inclusive, as in Prometheus. Slot 0 holds everything up to 2^-20 s (0.95 us), the last
 * slot everything above 2^10 s (17 min). Go's counterpart is exporters/agent/nativehist.
 */
#ifndef __PLUMBLINE_NATIVE_HISTOGRAM_H__
#define __PLUMBLINE_NATIVE_HISTOGRAM_H__

#define NATIVE_MIN_EXPONENT (-20)
#define NATIVE_MAX_EXPONENT 10
#define NATIVE_SLOTS ((NATIVE_MAX_EXPONENT - NATIVE_MIN_EXPONENT) * 8 + 2)

static __always_inline u32 native_slot(u64 ns)
{
	/* Longer than any slot distinguishes, and the scaling below must not overflow. */
	if (ns >= 1ULL << 41)
		return NATIVE_SLOTS - 1;
	/* From units of 10^-9 s to units of 2^-30 s, so that powers of two are bucket bounds. */
	u64 v = ns + ((ns * 1237183) >> 24);
	if (v <= 1ULL << (30 + NATIVE_MIN_EXPONENT))
		return 0;
		/* Without branches, as none of these could be predicted: 1 if n is above the bound. */
#define ABOVE(bound, n) (((bound) - (n)) >> 63)
	u64 m = v;
	u32 e = 0;
#pragma unroll
	for (u32 bits = 32; bits; bits /= 2) {
		u32 half = ABOVE((1ULL << bits) - 1, m) * bits;

		m >>= half;
		e += half;
	}
	/* The mantissa in [2^31, 2^32) against 2^(31 + j/8). */
	u64 f = e <= 31 ? v << (31 - e) : v >> (e - 31);
	u32 sub = ABOVE(2147483648ULL, f) + ABOVE(2341847524ULL, f) + ABOVE(2553802834ULL, f) + ABOVE(2784941738ULL, f) +
		  ABOVE(3037000500ULL, f) + ABOVE(3311872529ULL, f) + ABOVE(3611622603ULL, f) + ABOVE(3938502376ULL, f);
#undef ABOVE
	u32 slot = (e - (30 + NATIVE_MIN_EXPONENT)) * 8 + sub;
	return slot < NATIVE_SLOTS ? slot : NATIVE_SLOTS - 1;
}

#endif
