// Package trace holds the kernel side of the trace collector that is its own: the BPF programs on block requests,
// built from trace.bpf.c, and the Go types of the events, which the programs of query and replica report, too.
package trace

//go:generate go tool bpf2go -tags linux -target bpfel -cc clang-14 -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type trace_event -type trace_kind -type trace_flag -type wake_reason -type trace_wait Trace trace.bpf.c
