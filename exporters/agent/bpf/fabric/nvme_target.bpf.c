//go:build ignore

/* Latency of each connection of NVMe over TCP as a target sees it that is a program in user space, such as SPDK's,
 * from its calls on sockets: see user_target.h.
 */
#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#define OWN_FOLLOWER FOLLOWS_NVME
#include "nvme_pdu.h"
#include "nvme_login.h"
#include "user_target_programs.h"

char LICENSE[] SEC("license") = "GPL";
