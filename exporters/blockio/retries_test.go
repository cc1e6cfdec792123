package blockio_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

const dropRetry = 4

// retried is the program's struct retried.
type retried struct{ Start, Issued uint64 }

// newHalvingDisk makes a disk whose reads come back half done: the loop driver gives such a request back to its queue
// and tries it again, from where it got to.
func newHalvingDisk(t *testing.T) *rig.SlowDisk {
	t.Helper()
	testkit.NeedBPF(t)
	d, err := rig.NewSlowDisk(t, diskTempDir(t), diskSize)
	if err != nil {
		testkit.Skip(t, err.Error())
	}
	return d
}

// startStamping loads and attaches the programs, with stamps of their own for all queues or with the kernel's.
func startStamping(t *testing.T, own bool) *ebpf.Collection {
	t.Helper()
	spec, err := ebpf.LoadCollectionSpec("blkio.bpf.o")
	if err != nil {
		t.Fatal(err)
	}
	if err := spec.Variables["ignore_kernel_stamps"].Set(own); err != nil {
		t.Fatal(err)
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	attach(t, "blkio.bpf.o", coll)
	return coll
}

// readTime returns the sum of a histogram of a device's reads. One of nothing but zeros has none.
func readTime(t *testing.T, coll *ebpf.Collection, name, device string) time.Duration {
	t.Helper()
	key := keyOf(device, 0, 0)
	key.Slot = slots
	var ns uint64
	if err := coll.Maps[name].Lookup(key, &ns); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Fatalf("the sum of %s: %v", name, err)
	}
	return time.Duration(ns)
}

// nothingIsRetried checks that no request is remembered.
func nothingIsRetried(t *testing.T, coll *ebpf.Collection) {
	t.Helper()
	var left uint32
	if err := coll.Variables["retrying"].Get(&left); err != nil {
		t.Fatal(err)
	}
	var rq uint64
	var first retried
	for i := coll.Maps["retried"].Iterate(); i.Next(&rq, &first); {
		t.Errorf("request %#x is remembered: %+v", rq, first)
	}
	if n := dropped(t, coll, dropRetry); left != 0 || n != 0 {
		t.Errorf("%d requests are being tried again, %d retries were lost", left, n)
	}
}

// All that a request takes from when the driver got it first is the device's time, however often the driver gets it.
func TestRetriedRequests(t *testing.T) {
	for name, own := range map[string]bool{"kernel's stamps": false, "own stamps": true} {
		t.Run(name, func(t *testing.T) { wholly(t, func() error { return retryRequests(t, own) }) })
	}
}

func retryRequests(t *testing.T, own bool) error {
	const reads, delay = 20, 10 * time.Millisecond
	disk := newHalvingDisk(t)
	device := filepath.Base(disk.Device)
	coll := startStamping(t, own)
	d := openDisk(t, disk.Device, 0)
	d.read(1) // from its end on the queue is known as one without the kernel's stamps
	if err := awaitExported(t, coll, device, 1); err != nil {
		return err
	}
	if n := exported(t, coll, "blkio_retries_total", device); n != 0 {
		t.Errorf("%d retries of a disk that works", n)
	}
	disk.ReadHalves(true)
	disk.Reads.Set(delay)
	began := time.Now()
	d.read(reads)
	took := time.Since(began)
	d.close()
	if err := awaitExported(t, coll, device, 1+reads); err != nil {
		return err
	}
	if n := exported(t, coll, "blkio_retries_total", device); n != reads {
		return fmt.Errorf("%d retries, want %d", n, reads)
	}
	// Each was held back twice, in two attempts.
	const atDevice = 2 * reads * delay
	if got := readTime(t, coll, "blkio_device_seconds", device); got < atDevice {
		t.Errorf("%s at the device, which held the reads back for %s", got, atDevice)
	}
	if got := readTime(t, coll, "blkio_queue_seconds", device); got > took-atDevice {
		t.Errorf("%s in the queue, of %s of which the device had %s", got, took, atDevice)
	}
	nothingIsRetried(t, coll)
	return nil
}

// What is remembered of an earlier request in the same place, whose end was not seen, does not count for a later one,
// and is forgotten with it.
func TestEarlierRequestIsNotTakenForARetriedOne(t *testing.T) {
	wholly(t, func() error { return earlierRequestIsNotTaken(t) })
}

func earlierRequestIsNotTaken(t *testing.T) error {
	disk := newHalvingDisk(t)
	device := filepath.Base(disk.Device)
	coll := startStamping(t, false)
	d := openDisk(t, disk.Device, 0)
	// The second half of a read arrives when the test releases it.
	var reads atomic.Int32
	goOn := make(chan struct{})
	disk.Reads.SetBy(func() time.Duration {
		if reads.Add(1) == 2 {
			<-goOn
		}
		return 0
	})
	disk.ReadHalves(true)
	began := time.Now()
	done := make(chan error, 1)
	go func() {
		_, err := unix.Pread(int(d.file.Fd()), d.page, 0)
		done <- err
	}()
	var rq uint64
	var first retried
	err := testkit.Await(countedWithin, func() error {
		if !coll.Maps["retried"].Iterate().Next(&rq, &first) {
			return fmt.Errorf("no request is remembered")
		}
		return nil
	})
	// That of one that was made and handed over just before it.
	if err == nil {
		err = coll.Maps["retried"].Put(rq, retried{Start: first.Start - 1, Issued: first.Start - 1})
	}
	close(goOn)
	if failed := <-done; failed != nil {
		t.Fatal(failed)
	}
	took := time.Since(began)
	d.close()
	if err != nil {
		return err
	}
	if err := awaitExported(t, coll, device, 1); err != nil {
		return err
	}
	queue, atDevice := readTime(t, coll, "blkio_queue_seconds", device), readTime(t, coll, "blkio_device_seconds", device)
	if queue == 0 || queue+atDevice > took {
		t.Errorf("%s in the queue, %s at the device, of %s: want the time before the last attempt in the queue", queue, atDevice, took)
	}
	nothingIsRetried(t, coll)
	return nil
}
