// Package query holds the kernel side of the query collector: the BPF programs, built from
// query.bpf.c, and their Go types.
package query

//go:generate go tool bpf2go -tags linux -target amd64,arm64 -cc clang-14 -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type stats -type amounts -type server -type adoption -type engine -type command -type sql_command -type redis_command -type phase -type loss -type population -type activity -type activity_kind -type extent -type flusher -type event_page -type per_server -type per_query Query query.bpf.c
