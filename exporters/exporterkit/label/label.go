// Package label makes what others wrote fit for a label or a log: names of volumes, addresses,
// states and error messages come from peers, users and their objects, and may hold any bytes.
package label

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Max bounds a label value that others may choose, in bytes. Kubernetes' object names, the longest legitimate names,
// have 253.
const Max = 256

// Value is Text with the bound Max.
func Value(s string) string { return Text(s, Max) }

// Text makes untrusted text fit for a label or a log: valid UTF-8 without control characters, of at most limit bytes.
// What does not fit becomes U+FFFD, or is cut off.
func Text(s string, limit int) string {
	if fits(s, limit) {
		return s
	}
	if len(s) > limit {
		// Not within a character: none has more than four bytes.
		end := limit
		for end > 0 && end > limit-utf8.UTFMax && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, s)
	// Replacements may be longer than what they replace.
	for len(s) > limit {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

// fits is the common case: printable ASCII that is short enough.
func fits(s string, limit int) bool {
	if len(s) > limit {
		return false
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
