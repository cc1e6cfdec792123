// Command iscsi stands for four programs, by the name that it is called by, where a kernel has no iSCSI: tgtd, tgtadm and sg_raw in
// Longhorn's instance manager, iscsiadm on the node. It has what Longhorn calls of them, and each answer is as theirs. A login
// attaches no SCSI disk but a loop device over the FUSE file of longhorn-bridge, which reads the engine's socket: all above the
// block device and below that socket is Longhorn's own, and nothing between them is iSCSI.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// exitCode is what iscsiadm ends with.
type exitCode struct {
	error
	code int
}

func main() {
	var err error
	switch name := filepath.Base(os.Args[0]); name {
	case "tgtd":
		err = serveTargets()
	case "tgtadm":
		err = tgtadm(os.Args[1:])
	case "sg_raw":
		err = sgRaw(os.Args[1:])
	case "iscsiadm":
		err = iscsiadm(os.Args[1:])
	default:
		err = fmt.Errorf("%s is none of its names; call it tgtd, tgtadm, sg_raw or iscsiadm", name)
	}
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "%s: %v\n", filepath.Base(os.Args[0]), err)
	if e, ok := err.(exitCode); ok {
		os.Exit(e.code)
	}
	os.Exit(1)
}
