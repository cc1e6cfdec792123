// Package fabric holds the kernel side of the collectors nvme and iscsi: BPF programs that follow operations that the
// kernel itself reports, built from nvme.bpf.c and iscsi.bpf.c, and their Go types. The maps of both objects are those
// of fabric.h: the types of one are the other's.
package fabric

//go:generate go tool bpf2go -tags linux -target bpfel -cc clang-14 -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type export_key -type export -type operation -type controller -type latency_key -type event Nvme nvme.bpf.c
//go:generate go tool bpf2go -tags linux -target bpfel -cc clang-14 -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -no-global-types Iscsi iscsi.bpf.c
//go:generate go tool bpf2go -tags linux -target bpfel -cc clang-14 -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type session -type message -type parsed -type user_target_event IscsiTarget iscsi_target.bpf.c
//go:generate go tool bpf2go -tags linux -target bpfel -cc clang-14 -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -no-global-types NvmeTarget nvme_target.bpf.c
