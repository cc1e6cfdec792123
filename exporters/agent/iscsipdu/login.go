package iscsipdu

import "bytes"

const (
	// TextMax is how much of a login's text is parsed.
	TextMax = 1024
	// NameMax is the longest name of a target.
	NameMax = 223
)

// Login is the content of a login's text.
type Login struct {
	// Target is the target's name; empty if the text has none, or one that is too long.
	Target string
	// HeaderDigest and DataDigest are set if CRC32C is in use, as a target's answer has it.
	HeaderDigest, DataDigest bool
}

// Keys reads text keys that are separated by NUL.
func Keys(text []byte) (l Login) {
	cut := len(text) >= TextMax
	text = text[:min(len(text), TextMax)]
	for len(text) > 0 {
		key, rest, ended := bytes.Cut(text, []byte{0})
		if cut && !ended {
			break // the rest is missing
		}
		text = rest
		name, value, _ := bytes.Cut(key, []byte{'='})
		crc := string(value) == "CRC32C"
		switch string(name) {
		case "TargetName":
			// The first one counts, and none that is empty or too long.
			if l.Target == "" && len(value) <= NameMax {
				l.Target = string(value)
			}
		case "HeaderDigest":
			l.HeaderDigest = crc
		case "DataDigest":
			l.DataDigest = crc
		}
	}
	return l
}

// add adds the content of a later text; a key is negotiated once.
func (l *Login) add(more Login) {
	if l.Target == "" {
		l.Target = more.Target
	}
	l.HeaderDigest = l.HeaderDigest || more.HeaderDigest
	l.DataDigest = l.DataDigest || more.DataDigest
}
