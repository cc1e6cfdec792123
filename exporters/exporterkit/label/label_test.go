package label

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"pvc-0b5a", "pvc-0b5a"},
		{"", ""},
		{"a\xffb", "a\uFFFDb"},
		{"a\nb\x00c", "a\uFFFDb\uFFFDc"},
		{"größe", "größe"},
		{strings.Repeat("x", 300), strings.Repeat("x", Max)},
	} {
		if got := Value(test.in); got != test.want {
			t.Errorf("%q becomes %q, want %q", test.in, got, test.want)
		}
	}
}

// For any input the result is valid, printable and short, and a text that was already so is unchanged.
func FuzzText(f *testing.F) {
	f.Add("volume", 8)
	f.Add("\xff\xfe\x00", 4)
	f.Add("ééééé", 3)
	f.Add("\x80\x80\x80\x80", 2)
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 0 || limit > 1<<16 {
			return
		}
		got := Text(s, limit)
		if len(got) > limit || !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return !unicode.IsPrint(r) && r != utf8.RuneError }) {
			t.Errorf("Text(%q, %d) is %q", s, limit, got)
		}
		if again := Text(got, limit); again != got {
			t.Errorf("Text of %q is %q, of that %q", s, got, again)
		}
	})
}
