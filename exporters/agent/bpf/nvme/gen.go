// Package nvme holds the kernel side of the nvme collector: the BPF programs, built from nvme.bpf.c, and
// their Go types.
package nvme

//go:generate go tool bpf2go -tags linux -target amd64,arm64 -cc clang-14 -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type disk_key -type export_key -type export -type operation -type controller -type latency_key -type latency -type event Nvme nvme.bpf.c
