package rig

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
)

// awake loops until the given process is gone. It checks rarely, so that it is nearly always in its own code.
const awake = `while kill -0 %d 2>/dev/null; do i=0; while [ $i -lt 10000 ]; do i=$((i+1)); done; done`

// KeepAwake keeps the machine's CPUs from falling asleep until t ends, by loops that only run on otherwise idle CPUs. A
// sleeping CPU takes its time to wake up, and a virtual machine's as long as its host likes: whoever compares times in
// which CPUs sleep more with times in which they sleep less would measure that.
func KeepAwake(t T) {
	t.Helper()
	for range runtime.NumCPU() {
		Start(t, exec.Command("chrt", "--idle", "0", "sh", "-c", fmt.Sprintf(awake, os.Getpid())))
	}
}
