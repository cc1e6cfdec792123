package blockio_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	rounds = flag.Int("overhead.rounds", 15, "rounds of BenchmarkOverhead; each measures both programs once")
	window = flag.Duration("overhead.window", time.Second, "how long each is measured per round")
	before = flag.String("overhead.before", "", "another build of blkio.bpf.o, such as that of before a change, to compare with in the same run")
)

// upstream is the version of ebpf_exporter whose example is compared with.
const upstream = "github.com/cloudflare/ebpf_exporter/v2@v2.5.1"

// BenchmarkOverhead compares the cost of a block I/O in our programs with that in
// ebpf_exporter's own biolatency example, by the kernel's BPF statistics: run time of all of an
// object's programs for each run of its completion hook. The two take turns under one
// continuous load on a loop device, so that what else the machine does hits both alike.
func BenchmarkOverhead(b *testing.B) {
	testkit.NeedBPF(b)
	stats, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		b.Fatal(err)
	}
	defer stats.Close()

	contenders := []*contender{
		newContender(b, "blkio", "blkio.bpf.o", "blkio_rq_complete"),
		newContender(b, "biolatency", compileBiolatency(b), "block_rq_complete"),
	}
	if *before != "" {
		contenders = append(contenders, newContender(b, "before", *before, "blkio_rq_complete"))
	}
	device, _ := newLoop(b, 256<<20)
	load := exec.Command(testkit.Tool(b, "fio"), "--name=load", "--filename="+device, "--direct=1",
		"--thread", "--rw=randrw", "--bs=4k", "--iodepth=8", "--ioengine=libaio", "--time_based", "--runtime=1h")
	if err := load.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		load.Process.Kill()
		load.Wait()
	}()

	file, err := rows.Open(filepath.Join(testkit.Root(), "build", "results"), "blockio",
		"go test -run '^$' -bench Overhead -benchtime 1x -v ./exporters/blockio")
	if err != nil {
		b.Fatal(err)
	}
	var ratios, change []float64
	for range *rounds {
		for _, c := range contenders {
			c.measure(b)
		}
		ratios = append(ratios, contenders[0].last()/contenders[1].last())
		if *before != "" {
			change = append(change, contenders[0].last()/contenders[2].last())
		}
	}
	for _, c := range contenders {
		b.Logf("%-10s %s ns per I/O over %d I/Os, %d runs skipped by the kernel", c.name, spread(c.nsPerIO, "%.0f"), c.ios, c.misses)
		for name, ns := range c.parts {
			b.Logf("  %-18s %s", name, spread(ns, "%.0f"))
		}
		b.ReportMetric(median(c.nsPerIO), c.name+"-ns/IO")
	}
	b.Logf("ratio      %s", spread(ratios, "%.2f"))
	b.ReportMetric(median(ratios), "ratio")
	if *before != "" {
		b.Logf("to before  %s", spread(change, "%.3f"))
		b.ReportMetric(median(change), "to-before")
	}
	const section = "Overhead: BPF time per block I/O (range over rounds)"
	for _, c := range contenders[:2] {
		file.Add(section, c.name, "ns per I/O", spread(c.nsPerIO, "%.0f"), "I/Os", fmt.Sprint(c.ios), "rounds", fmt.Sprint(*rounds))
	}
	file.Add(section, "ratio of the two", "ns per I/O", spread(ratios, "%.2f"), "rounds", fmt.Sprint(*rounds))
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
}

// contender is one of the compared objects and what was measured of it.
type contender struct {
	name, object, hook string
	coll               *ebpf.Collection
	nsPerIO            []float64
	parts              map[string][]float64
	ios, misses        uint64
}

func newContender(b *testing.B, name, object, hook string) *contender {
	return &contender{name: name, object: object, hook: hook, coll: load(b, object), parts: map[string][]float64{}}
}

func (c *contender) last() float64 { return c.nsPerIO[len(c.nsPerIO)-1] }

func (c *contender) stats(b *testing.B) map[string]ebpf.ProgramStats {
	all := map[string]ebpf.ProgramStats{}
	for name, prog := range c.coll.Programs {
		s, err := prog.Stats()
		if err != nil {
			b.Fatal(err)
		}
		all[name] = *s
	}
	return all
}

// measure attaches the contender for one window and appends what its I/Os cost.
func (c *contender) measure(b *testing.B) {
	before := c.stats(b)
	detach := attach(b, c.object, c.coll)
	time.Sleep(*window)
	detach()
	after := c.stats(b)

	ios := after[c.hook].RunCount - before[c.hook].RunCount
	if ios == 0 {
		b.Fatalf("%s saw no I/O", c.name)
	}
	var total time.Duration
	for name := range after {
		took := after[name].Runtime - before[name].Runtime
		total += took
		c.parts[name] = append(c.parts[name], float64(took)/float64(ios))
		c.misses += after[name].RecursionMisses - before[name].RecursionMisses
	}
	c.nsPerIO = append(c.nsPerIO, float64(total)/float64(ios))
	c.ios += ios
}

// compileBiolatency compiles the example out of ebpf_exporter's module in the module cache.
func compileBiolatency(b *testing.B) string {
	out, err := exec.Command("go", "mod", "download", "-json", upstream).Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil {
		testkit.Skip(b, fmt.Sprintf("needs %s in the module cache: %v: %s", upstream, err, out))
	}
	arch := map[string]string{"amd64": "x86", "arm64": "arm64"}[runtime.GOARCH]
	examples := filepath.Join(module.Dir, "examples")
	// bpf_helpers.h by hand: the example relies on a newer libbpf's headers including it.
	return compile(b, filepath.Join(examples, "biolatency.bpf.c"), "-D__TARGET_ARCH_"+arch,
		"-I"+filepath.Join(module.Dir, "include", arch), "-I"+examples,
		"-include", "vmlinux.h", "-include", "bpf/bpf_helpers.h")
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// spread formats a sample as median and range.
func spread(values []float64, verb string) string {
	f := strings.ReplaceAll("V (V to V)", "V", verb)
	return fmt.Sprintf(f, median(values), slices.Min(values), slices.Max(values))
}
