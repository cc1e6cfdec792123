package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/rig"
)

// held are folders that the disk at work would hide, such as a checkout below /var/tmp, held open.
type held map[string]*os.File

// hold opens those folders that are below work.
func hold(t *rig.Scope, folders ...string) held {
	h := held{}
	for _, folder := range folders {
		if strings.HasPrefix(folder, work+"/") && h[folder] == nil {
			f, err := os.Open(folder)
			t.Check(err)
			h[folder] = f
		}
	}
	return h
}

// names are the folders, those that are within others last.
func (h held) names() []string {
	var names []string
	for name := range h {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// show mounts each again where it was.
func (h held) show(t *rig.Scope) {
	for _, name := range h.names() {
		t.Check(os.MkdirAll(name, 0o755))
		t.Check(unix.Mount(fmt.Sprintf("/proc/self/fd/%d", h[name].Fd()), name, "", unix.MS_BIND, ""))
	}
}

// hide takes them off again, so that the disk can be unmounted.
func (h held) hide(t *rig.Scope) {
	for _, name := range slices.Backward(h.names()) {
		t.Check(unix.Unmount(name, 0))
		t.Check(h[name].Close())
	}
}
