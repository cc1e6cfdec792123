// Package blockio is the block I/O latency program for Cloudflare's ebpf_exporter: blkio.bpf.c,
// its configuration blkio.yaml and the committed object blkio.bpf.o. It has no Go code of
// its own but its tests and its benchmark.
//
// The object serves amd64 and arm64 alike: it reads no registers, and offsets are found when it
// is loaded.
package blockio

//go:generate clang-14 -target bpfel -mcpu=v3 -O2 -g -Wall -Werror -fdebug-compilation-dir=. -I../bpf -c blkio.bpf.c -o blkio.bpf.o
//go:generate llvm-strip-14 -g blkio.bpf.o
