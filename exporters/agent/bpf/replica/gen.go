// Package replica holds the kernel side of the replica collector: the BPF programs, one
// object for each wire, and their Go types.
package replica

//go:generate go tool bpf2go -tags linux -target bpfel -cc clang-14 -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type process -type connection -type operation -type operation_key -type peer_key -type latency -type latency_key -type write -type write_key -type ack_key -type acks -type process_event -type event -type view -type role -type wire_op -type socket_state -type socket_flag Dataconn dataconn.bpf.c
