package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/rig"
)

const toolsSection = "Accuracy: agreement with other tools in the same run"

// agreeFio compares blockio's totals on a loop device with fio's completion latencies and the
// kernel's own account of the device, for one and for several requests at a time.
func agreeFio(t *rig.Scope, o options) {
	file := filepath.Join(tempDir(t), "disk")
	t.Check(os.WriteFile(file, nil, 0o600))
	t.Check(os.Truncate(file, 256<<20))
	device, err := rig.AttachLoop(t, file)
	t.Check(err)
	url, _ := rig.StartBlockio(t)
	read := func() (count, seconds float64) { return blockio(t, url, "total", device, "write") }
	for _, depth := range []int{1, 8} {
		// What an earlier run of it left in the page cache is written before.
		_, err := exec.Command("blockdev", "--flushbufs", device).CombinedOutput()
		t.Check(err)
		count, seconds := read()
		kernelCount, kernelSeconds := diskstats(t, filepath.Base(device))
		out, err := exec.Command(rig.Tool(t, "fio"), "--name=agree", "--filename="+device, "--direct=1", "--rw=randwrite", "--bs=4k",
			"--ioengine=libaio", fmt.Sprintf("--iodepth=%d", depth), "--time_based", fmt.Sprintf("--runtime=%.0f", o.seconds.Seconds()), "--output-format=json").Output()
		t.Check(err)
		var report struct {
			Jobs []struct {
				Write struct {
					TotalIOs float64 `json:"total_ios"`
					Clat     struct {
						Mean float64 `json:"mean"`
					} `json:"clat_ns"`
				} `json:"write"`
			} `json:"jobs"`
		}
		t.Check(json.Unmarshal(out, &report))
		fio := report.Jobs[0].Write
		c, s := read()
		kc, ks := diskstats(t, filepath.Base(device))
		count, seconds, kernelCount, kernelSeconds = c-count, s-seconds, kc-kernelCount, ks-kernelSeconds
		what := fmt.Sprintf("4 KiB writes, %d at a time: ", depth)
		agree(t, o, what+"blockio and fio's clat", fio.TotalIOs, fio.Clat.Mean/1e9, count, seconds/count)
		agree(t, o, what+"blockio and /proc/diskstats, which node_exporter reads", kernelCount, kernelSeconds/kernelCount, count, seconds/count)
	}
}

// blockio is how many requests of some operations on a device blockio has counted in one of its
// histograms, and their time, once what is under way has arrived: a count may be a quarter of a
// second late (exporters/blockio/histograms.h).
func blockio(t *rig.Scope, url, histogram, device string, ops ...string) (count, seconds float64) {
	read := func() (count, seconds float64) {
		m, err := agentproc.Scrape(context.Background(), url)
		t.Check(err)
		name := "ebpf_exporter_blkio_" + histogram + "_seconds"
		for _, op := range ops {
			by := []string{"device", filepath.Base(device), "op", op}
			count, seconds = count+m.Sum(name, by...), seconds+m.Seconds(name, by...)
		}
		return count, seconds
	}
	count, seconds = read()
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		time.Sleep(300 * time.Millisecond)
		before := count
		if count, seconds = read(); count != before {
			return fmt.Errorf("%s does not come to rest", device)
		}
		return nil
	})
	return count, seconds
}

// agree adds a row that compares counts and means, in seconds.
func agree(t *rig.Scope, o options, what string, theirCount, their, ourCount, our float64) {
	cells := []string{
		"their count", fmt.Sprintf("%.0f", theirCount), "our count", fmt.Sprintf("%.0f", ourCount),
		"their mean", us(their), "our mean", us(our), "difference", fmt.Sprintf("%+.1f us", (our-their)*1e6),
		"ratio", fmt.Sprintf("%.4f", our/their),
	}
	o.out.Add(toolsSection, what, cells...)
	t.Logf("%s: %v", what, cells)
}

func us(seconds float64) string { return fmt.Sprintf("%.1f us", 1e6*seconds) }

// diskstats is how many writes, flushes included, the kernel counts of a device, and their time.
func diskstats(t *rig.Scope, device string) (count, seconds float64) {
	text, err := os.ReadFile("/proc/diskstats")
	t.Check(err)
	const name, writes, writeTime = 2, 7, 10 // Documentation/admin-guide/iostats.rst
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) <= writeTime || fields[name] != device {
			continue
		}
		count, err = strconv.ParseFloat(fields[writes], 64)
		t.Check(err)
		ms, err := strconv.ParseFloat(fields[writeTime], 64)
		t.Check(err)
		return count, ms / 1e3
	}
	t.Fatalf("/proc/diskstats has no %s", device)
	return 0, 0
}
