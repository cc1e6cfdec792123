package collector

import (
	"golang.org/x/sys/unix"
)

// Text is a string of the kernel's, up to its end.
func Text(b []int8) string { return unix.ByteSliceToString(Raw(b)) }

// Raw are the kernel's bytes.
func Raw(b []int8) []byte {
	raw := make([]byte, len(b))
	for i, c := range b {
		raw[i] = byte(c)
	}
	return raw
}
