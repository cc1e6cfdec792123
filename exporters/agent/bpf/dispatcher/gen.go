// Package dispatcher holds the programs at the calls on sockets, which pass them on to the collectors' programs, and their Go
// types.
package dispatcher

//go:generate go tool bpf2go -tags linux -target bpfel -cc clang-14 -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type follower Dispatcher dispatcher.bpf.c
