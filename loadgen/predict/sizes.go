package predict

import (
	"fmt"
	"strings"
)

// likeSizes is whether a window's operations are of like size, where that is known of both.
func likeSizes(from map[string]Operation, w Load) bool {
	for name, o := range w.Operations {
		if a, b := from[name].Bytes, o.Bytes; a > 0 && b > 0 && (a > likeSize*b || b > likeSize*a) {
			return false
		}
	}
	return true
}

// ofSizes notes the operations whose sizes were not compared. A flush has none.
func (p *Prediction) ofSizes(f *fitted, here, there map[string]Operation) {
	var not []string
	for _, name := range []string{"sync", "write", "read"} {
		used := f.flush[name] > 0
		for i := range f.kinds {
			used = used || name == "read" && f.waitsToRead(i)
		}
		if used && !(here[name].Bytes > 0 && there[name].Bytes > 0) {
			not = append(not, name)
		}
	}
	if len(not) > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("sizes of operations of kind %s were not compared: they are not known of both classes", strings.Join(not, ", ")))
	}
}
