package sandbox

import (
	"fmt"
	"os"
	"time"
)

// Remove ends what is left of the lab in dir and removes its folder.
func Remove(dir string) error {
	if !Exists(dir) {
		return fmt.Errorf("%s holds no lab; nothing was touched", dir)
	}
	if err := Kill(dir, 30*time.Second); err != nil {
		return err
	}
	// The namespace's mounts went with its last process; what is still mounted was made
	// where the machine allowed no namespace.
	if err := unmountBelow(dir); err != nil {
		return err
	}
	if err := DetachLoops(dir, 30*time.Second); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}
