//go:build ignore

/* Latency of each replica of Longhorn V1 and Jiva volumes, from the messages between
 * engine, replicas and frontend: see track.h for how, dataconn.h for the wire. */
#include "../../../bpf/vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_tracing.h>

#include "dataconn.h"
#include "inspect.h"
#include "processes.h"
#include "sockets.h"

char LICENSE[] SEC("license") = "GPL";
