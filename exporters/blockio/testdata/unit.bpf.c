//go:build ignore

/* Programs that run blkio's helper functions on values of a test. */
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>

#include "disk.h"
#include "slots.h"

struct slot_ctx {
	u64 ns;
	u64 slot;
};

SEC("syscall")
int slot(struct slot_ctx *ctx)
{
	ctx->slot = blkio_slot(ctx->ns);
	return 0;
}

struct name_ctx {
	char name[BLKIO_NAME_LEN];
};

SEC("syscall")
int nvme_head(struct name_ctx *ctx)
{
	char name[BLKIO_NAME_LEN];

	__builtin_memcpy(name, ctx->name, sizeof(name));
	blkio_nvme_head(name);
	__builtin_memcpy(ctx->name, name, sizeof(name));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
