package blockio_test

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/plumbline/plumbline/tests/testkit"
)

// loadUnits compiles and loads the programs that wrap our BPF functions.
func loadUnits(t *testing.T) *ebpf.Collection {
	t.Helper()
	testkit.NeedBPF(t)
	return load(t, compile(t, filepath.Join("testdata", "unit.bpf.c"), "-I.", "-I../bpf"))
}

// The kernel runs the slot function on both sides of every bound, and in between.
func TestSlots(t *testing.T) {
	prog := loadUnits(t).Programs["slot"]
	bounds := bounds(t)

	values := []uint64{0, 1, 1 << 40, 1<<64 - 1}
	low := uint64(0)
	for _, b := range bounds {
		values = append(values, b-1, b, b+1)
		for range 20 {
			values = append(values, low+1+rand.Uint64N(b-low))
		}
		low = b
	}
	for _, ns := range values {
		want, _ := slices.BinarySearch(bounds, ns)
		want = min(want, len(bounds)-1) // the last one also takes what is slower
		ctx := struct{ NS, Slot uint64 }{NS: ns}
		if _, err := prog.Run(&ebpf.RunOptions{Context: ctx, ContextOut: &ctx}); err != nil {
			t.Fatal(err)
		}
		if ctx.Slot != uint64(want) {
			t.Errorf("%d ns: slot %d, want %d (up to %d ns)", ns, ctx.Slot, want, bounds[want])
		}
	}
}

func TestNVMeNames(t *testing.T) {
	prog := loadUnits(t).Programs["nvme_head"]
	for name, want := range map[string]string{
		"nvme0n1":                          "nvme0n1",
		"nvme0c0n1":                        "nvme0n1",
		"nvme12c3n45":                      "nvme12n45",
		"nvme255c255n255":                  "nvme255n255",
		"sdc":                              "sdc",
		"nvmesh/csi-8d1c4f22":              "nvmesh/csi-8d1c4f22",
		"mmcblk0boot0":                     "mmcblk0boot0",
		"pxd!pxd1060966104541797131":       "pxd!pxd1060966104541797131",
		strings.Repeat("c", nameLen-1):     strings.Repeat("c", nameLen-1),
		"nvme" + strings.Repeat("0", 12+4): "nvme" + strings.Repeat("0", 12+4),
	} {
		var ctx [nameLen]byte
		copy(ctx[:], name)
		if _, err := prog.Run(&ebpf.RunOptions{Context: ctx, ContextOut: &ctx}); err != nil {
			t.Fatal(err)
		}
		if got := strings.TrimRight(string(ctx[:]), "\x00"); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
}
