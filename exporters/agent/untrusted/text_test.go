package untrusted

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestText(t *testing.T) {
	for _, c := range []struct {
		in    string
		limit int
		want  string
	}{
		{"main", 10, "main"},
		{"", 10, ""},
		{"\xff\xfe", 10, "\uFFFD"},
		{"a\xffb", 10, "a\uFFFDb"},
		{"a\nb\x00c\x1b[1m", 20, "a\uFFFDb\uFFFDc\uFFFD[1m"},
		{"abcdef", 3, "abc"},
		{"größe", 3, "gr"},
		{"a\u202eb", 10, "a\uFFFDb"},
	} {
		if got := Text(c.in, c.limit); got != c.want {
			t.Errorf("%q within %d is %q, want %q", c.in, c.limit, got, c.want)
		}
	}
}

func TestVersion(t *testing.T) {
	for in, want := range map[string]string{
		"15\n":                      "15",
		"9.6":                       "9.6",
		"10.11.14-MariaDB\x00":      "10.11.14",
		"8.0.35\n\n":                "8.0.35",
		"":                          "",
		"\n15":                      "",
		"root:*:20228:0:99999:7:::": "",
		"15 root":                   "",
		"1.":                        "",
		".":                         "",
		"-":                         "",
		"\xff":                      "",
		"/etc/shadow":               "",
		strings.Repeat("1", 33):     "",
		"password-of-somebody":      "",
		"17beta1":                   "",
		"15\nroot:*:20228:0:99999:": "15",
		"１５":                        "",
	} {
		if got := Version(in); got != want {
			t.Errorf("%q is version %q, want %q", in, got, want)
		}
	}
}

func TestHostname(t *testing.T) {
	for in, want := range map[string]string{
		"pvc-1-jiva-rep-2\n": "pvc-1-jiva-rep-2", "a.b": "a.b", "": "", "a b": "", "root:x:0:0": "", "a\nb": "", "\xff": "",
		strings.Repeat("a", 254): "",
	} {
		if got := Hostname(in); got != want {
			t.Errorf("%q is host %q, want %q", in, got, want)
		}
	}
}

// For any input the result fits for a label.
func FuzzText(f *testing.F) {
	for _, s := range []string{"a", "\xff\xfe", "ööö", "\x80\x80\x80", "\xf0\x9f\x98"} {
		f.Add(s, 4)
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		if limit < 0 || limit > 1<<16 {
			return
		}
		if got := Text(s, limit); len(got) > limit || !utf8.ValidString(got) || strings.ContainsAny(got, "\n\x00") {
			t.Errorf("%q within %d is %q", s, limit, got)
		}
		if v := Version(s); strings.Trim(v, "0123456789.") != "" || len(v) > maxVersion {
			t.Errorf("%q is version %q", s, v)
		}
	})
}
