/* Names of disks, as the device label carries them. */
#ifndef BLKIO_DISK_H
#define BLKIO_DISK_H

#define BLKIO_NAME_LEN 32 /* the kernel's DISK_NAME_LEN */

/* blkio_is_nvme reports whether name is an NVMe namespace's: a number follows, unlike in nvmesh/volume. */
static __always_inline bool blkio_is_nvme(const char *name)
{
	return name[0] == 'n' && name[1] == 'v' && name[2] == 'm' && name[3] == 'e' && name[4] >= '0' &&
	       name[4] <= '9';
}

/* blkio_nvme_head turns the name of a path to an NVMe multipath namespace into that of the
 * namespace, which is the disk that users see and mount: nvme0c1n2 becomes nvme0n2
 * (drivers/nvme/host names both). Other names stay as they are.
 */
static __always_inline void blkio_nvme_head(char *name)
{
	u64 head[2] = {};
	u32 to = 0;
	bool skip = false;

	if (!blkio_is_nvme(name))
		return;
		/* Sixteen bytes hold "nvme" and three numbers of up to three digits. The copy goes
	 * through shifts, as the verifier wants constant offsets into the stack.
	 */
#pragma unroll
	for (u32 from = 0; from < sizeof(head); from++) {
		u64 c = (u8)name[from];

		if (c == 'c')
			skip = true;
		else if (c == 'n')
			skip = false;
		if (skip)
			continue;
		if (to < 64)
			head[0] |= c << to;
		else
			head[1] |= c << (to - 64);
		to += 8;
	}
	__builtin_memcpy(name, head, sizeof(head));
}

/* blkio_disk_name writes disk's name to name, which must be all zero. Byte by byte is
 * cheaper than a call of bpf_probe_read_kernel, as names are short.
 */
static __always_inline void blkio_disk_name(char *name, struct gendisk *disk)
{
#pragma unroll
	for (u32 i = 0; i < BLKIO_NAME_LEN; i++) {
		char c = disk->disk_name[i];

		if (!c)
			break;
		name[i] = c;
	}
}

#endif
