package query

import (
	"testing"
)

// Process events of many processes need no more room than those of a few, and report that there were more.
func TestProcessEventsBounded(t *testing.T) {
	n := newProcessEvents()
	for pid := 1; pid <= maxProcessEvents; pid++ {
		n.add(pid)
		n.add(pid) // one process twice is one
	}
	if pids, more := n.take(); len(pids) != maxProcessEvents || more {
		t.Errorf("%d processes, more: %v", len(pids), more)
	}
	for pid := 1; pid <= 10000; pid++ {
		n.add(pid)
	}
	if pids, more := n.take(); len(pids) != maxProcessEvents || !more {
		t.Errorf("%d processes of 10,000, more: %v", len(pids), more)
	}
	n.add(0) // of another PID namespace
	if pids, more := n.take(); len(pids) != 0 || !more {
		t.Errorf("%v, more: %v for an unknown process", pids, more)
	}
	if pids, more := n.take(); len(pids) != 0 || more {
		t.Errorf("%v, more: %v without process events", pids, more)
	}
	select {
	case <-n.ready:
	default:
		t.Error("nobody is notified")
	}
}
