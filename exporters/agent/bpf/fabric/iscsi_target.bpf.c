//go:build ignore

/* Latency of each iSCSI session as a target sees it that is a program in user space, such as tgt or istgt, from its
 * calls on sockets: see user_target.h.
 */
#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#define OWN_FOLLOWER FOLLOWS_ISCSI
#include "iscsi_pdu.h"
#include "iscsi_login.h"
#include "user_target_programs.h"

char LICENSE[] SEC("license") = "GPL";
