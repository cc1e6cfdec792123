// Package disk holds the kernel side of the collector disk: the program that counts block requests by disk and cgroup,
// built from disk.bpf.c.
package disk

//go:generate go tool bpf2go -tags linux -target bpfel -cc clang-14 -cflags "-O2 -g -mcpu=v3 -Wall -Werror" -type source -type lost Disk disk.bpf.c
