/* Little-endian numbers at any alignment, of protocols. */
#ifndef __PLUMBLINE_LITTLE_ENDIAN_H__
#define __PLUMBLINE_LITTLE_ENDIAN_H__

static __always_inline u16 le16(const u8 *p)
{
	return p[0] | p[1] << 8;
}

static __always_inline u32 le32(const u8 *p)
{
	return p[0] | p[1] << 8 | p[2] << 16 | (u32)p[3] << 24;
}

static __always_inline u64 le64(const u8 *p)
{
	return le32(p) | (u64)le32(p + 4) << 32;
}

#endif
