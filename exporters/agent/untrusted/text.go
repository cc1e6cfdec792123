package untrusted

import (
	"strings"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

const (
	// MaxLabel bounds a label value that another process may choose.
	MaxLabel = 128
	// maxPath bounds a path in a label or an error.
	maxPath = 256
	// maxVersion bounds a version; none is longer than a few numbers.
	maxVersion = 32
	// maxHostname is the longest name that DNS allows.
	maxHostname = 253
)

// Text makes what another process wrote fit for a label or a log: valid UTF-8 without control
// characters, of limit bytes at the most. What does not fit becomes U+FFFD, or is cut off.
func Text(s string, limit int) string { return label.Text(s, limit) }

// Path makes a path fit for a label.
func Path(s string) string { return Text(s, maxPath) }

// Version returns the version number that a text begins with, digits and dots, or "" if the text
// is not a version: a server's own files hold nothing else, other files must not show through.
func Version(text string) string {
	text = strings.TrimRight(text, "\x00 \n\r\t")
	if i := strings.IndexAny(text, "\n\x00"); i >= 0 {
		text = text[:i]
	}
	number, _, _ := strings.Cut(text, "-") // 10.11.14-MariaDB
	number = strings.TrimSpace(number)
	if number == "" || len(number) > maxVersion {
		return ""
	}
	for _, part := range strings.Split(number, ".") {
		if part == "" || strings.Trim(part, "0123456789") != "" {
			return ""
		}
	}
	return number
}

// Hostname returns a text if it is a host's name, else "".
func Hostname(text string) string {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxHostname {
		return ""
	}
	for _, r := range text {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.':
		default:
			return ""
		}
	}
	return text
}
