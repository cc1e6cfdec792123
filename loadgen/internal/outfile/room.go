package outfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// MakeRoom makes room for a new PATH.1: PATH.1 becomes PATH.2 and so on, and of more than most the oldest is lost.
func MakeRoom(path string, most int) error {
	name := func(n int) string { return fmt.Sprintf("%s.%d", path, n) }
	for n := most; n > 1; n-- {
		if err := os.Rename(name(n-1), name(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}
