// Command kernels boots Debian's kernels in an emulator, with this machine's root, and shows what of the agent and of
// blockio works there, and how exactly.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/tests/kernels/job"
	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/testkit"
)

const help = `Boots Debian's kernels under QEMU, without KVM, with this machine's root below an overlay in memory.

Kernels are named by their series (6.1, 6.12), "newest" or "all"; the newest of a series that the machine's own Debian mirror has
is downloaded into ~/.cache/plumbline/kernels. The packages that this needs: tools/install-packages kernels.

"matrix" runs PostgreSQL, the agent, a Longhorn engine with two replicas and ebpf_exporter with blockio on each kernel and compares
all counts with a truth: the server's log, the requests made, /proc/diskstats. It ends with 1 if a feature that works gives a wrong
number. Consoles and outcomes stay in build/kernels, rows for tests/RESULTS.md in build/results.

"demo" shows make demo on each kernel, small, on the userland of this machine: the same program, with its variables (LAB_CLASSES,
LAB_INTERVAL, DURATION, BREAK) for a machine that is slow. It ends with 1 if one did not come to its end.

With --arch=arm64 on a machine of another architecture the root is one of Debian's packages, and what is measured is built for it;
tools/install-packages kernels-arm64 cross-arm64 has the emulator and the compiler.

Examples, at the root of the checkout, as root:
  kernels matrix 6.1 6.12 newest
  kernels matrix --agent=/tmp/other-agent --statements=1000 --append=preempt=full 7.3
  kernels matrix --arch=arm64 6.12
  kernels demo 6.1 6.12
  LAB_CLASSES="local longhorn-r3" kernels --timeout=90m demo 6.12
  kernels list
  kernels boot 6.12 -- uname -a
  kernels boot --append=preempt=full --disk=1024 newest -- build/bin/plumbline-agent --check`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernels:", err)
		os.Exit(max(code, 1))
	}
	os.Exit(code)
}

func run(ctx context.Context, args []string) (int, error) {
	app := kingpin.New("kernels", help)
	app.HelpFlag.Short('h')
	arch := app.Flag("arch", "Debian's name of the architecture: amd64 or arm64. Another one than the machine's has a root of Debian's packages instead of the machine's.").
		Default(runtime.GOARCH).Enum("amd64", "arm64")
	timeout := app.Flag("timeout", "How long the command in one guest may take.").Default("15m").Duration()
	memory := app.Flag("memory", "The guest's memory, in MiB.").Default("2048").Int()
	cpus := app.Flag("cpus", "The guest's CPUs.").Default("2").Int()
	more := app.Flag("append", "More of the kernel's command line, such as preempt=full.").String()

	list := app.Command("list", "Print the kernels that the mirror has.")

	fetch := app.Command("fetch", "Download kernels into the cache.")
	fetched := fetch.Arg("kernels", "The kernels.").Required().Strings()

	one := app.Command("boot", "Run a command as root in a guest, in this folder, and end with its exit code.")
	series := one.Arg("kernel", "The kernel.").Required().String()
	command := one.Arg("command", "The command and its arguments, after --.").Required().Strings()
	share := one.Flag("share", "A folder that the guest sees, writable, as /run/host; a temporary one if empty.").String()
	disk := one.Flag("disk", "Size in MiB of an empty disk, /dev/vda; none if 0.").Int()

	many := app.Command("matrix", "Measure agent and blockio on kernels, and print kernel by feature.").Default()
	wanted := many.Arg("kernels", "The kernels.").Default("all").Strings()
	agent := many.Flag("agent", "The agent's program; without it build/bin/plumbline-agent or, of another architecture than the machine's, one that is built now.").ExistingFile()
	statements := many.Flag("statements", "Statements of each kind.").Default("200").Int()
	replica := many.Flag("replica", "Run a Longhorn engine with two replicas, too.").Default("true").Bool()
	atOnce := many.Flag("at-once", "So many kernels side by side; an emulator keeps a CPU busy and its guest has its own memory.").Default("1").Int()
	results := many.Flag("results", "Where the rows go.").Default("build/results").String()
	consoles := many.Flag("consoles", "Where each kernel's console and outcome go.").Default("build/kernels").String()

	shown := app.Command("demo", "Show the demo on kernels, with what make build has built.")
	demoKernels := shown.Arg("kernels", "The kernels.").Required().Strings()
	pages := shown.Flag("pages", "Where each kernel's console and page go.").Default("build/kernels-demo").String()
	demoDisk := shown.Flag("disk", "Size in MiB of the disk that the lab is on.").Default("8192").Int()

	switch kingpin.MustParse(app.Parse(args)) {
	case shown.FullCommand():
		dir, err := os.Getwd()
		if err != nil {
			return 0, err
		}
		d := demos{dir: dir, folder: *pages, diskMiB: *demoDisk,
			guest: guest{arch: runtime.GOARCH, append: *more, memory: *memory, cpus: *cpus, timeout: *timeout}}
		failed, err := d.run(ctx, *demoKernels)
		return min(failed, 1), err
	case many.FullCommand():
		m := matrix{agent: *agent, statements: *statements, replica: *replica, folder: *consoles, atOnce: *atOnce,
			guest: guest{arch: *arch, append: *more, memory: *memory, cpus: *cpus, timeout: *timeout}}
		all, err := m.run(ctx, *wanted)
		if err != nil {
			return 0, err
		}
		printMatrix(os.Stdout, all)
		code := 0
		for _, one := range all {
			if len(one.failed()) > 0 {
				code = 1
			}
		}
		return code, record(*results, rows.Command("kernels"), all)
	case list.FullCommand():
		return 0, printList(ctx, *arch)
	case fetch.FullCommand():
		_, _, _, err := prepare(ctx, *arch, *fetched)
		return 0, err
	case one.FullCommand():
		dir, err := os.Getwd()
		if err != nil {
			return 0, err
		}
		g := guest{arch: *arch, command: *command, dir: dir, append: *more, share: *share,
			memory: *memory, cpus: *cpus, timeout: *timeout, console: os.Stdout}
		return bootOne(ctx, g, *series, *disk)
	}
	return 2, nil
}

func printList(ctx context.Context, arch string) error {
	s, err := openStore(arch)
	if err != nil {
		return err
	}
	have, err := s.list(ctx)
	if err != nil {
		return err
	}
	chosen, err := choose(have, []string{"all"})
	for _, k := range chosen {
		fmt.Printf("%-6s %s\n", k.series, k.release)
	}
	return err
}

// logf prints progress.
func logf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s kernels: %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// prepare chooses kernels, puts them into the cache, and returns them with the folder of each, and the guests' root.
func prepare(ctx context.Context, arch string, series []string) (chosen []kernel, folders []string, root string, err error) {
	s, err := openStore(arch)
	if err != nil {
		return nil, nil, "", err
	}
	have, err := s.list(ctx)
	if err != nil {
		return nil, nil, "", err
	}
	if chosen, err = choose(have, series); err != nil {
		return nil, nil, "", err
	}
	for _, k := range chosen {
		folder, err := s.folder(ctx, k, logf)
		if err != nil {
			return nil, nil, "", err
		}
		folders = append(folders, folder)
	}
	root, err = s.root(ctx, logf)
	return chosen, folders, root, err
}

// bootOne runs g's command in a guest of a kernel.
func bootOne(ctx context.Context, g guest, series string, diskMiB int) (int, error) {
	chosen, folders, root, err := prepare(ctx, g.arch, []string{series})
	if err != nil {
		return 0, err
	}
	g.release, g.folder, g.root = chosen[0].release, folders[0], root
	if foreign(g.arch) && g.dir != "/" {
		g.shares = append(g.shares, job.Share{Tag: "dir", From: g.dir, To: g.dir})
	}
	work, err := os.MkdirTemp("", "plumbline-kernels-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	if g.share == "" {
		g.share = work
	}
	if g.share, err = filepath.Abs(g.share); err != nil {
		return 0, err
	}
	if g.disk, err = emptyDisk(work, diskMiB); err != nil {
		return 0, err
	}
	if g.init, err = buildProgram(ctx, work, g.arch, "init"); err != nil {
		return 0, err
	}
	logf("booting %s", g.release)
	return boot(ctx, g)
}

// emptyDisk makes a disk's file, which takes up only what is written.
func emptyDisk(folder string, mib int) (string, error) {
	if mib == 0 {
		return "", nil
	}
	path := filepath.Join(folder, "disk")
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return path, f.Truncate(int64(mib) << 20)
}

// buildProgram compiles one of the programs below this folder that run in the guest, static, and returns its file. It
// finds the checkout by the path it was compiled at.
func buildProgram(ctx context.Context, to, arch, name string) (string, error) {
	return buildPackage(ctx, to, arch, "./tests/kernels/"+name)
}

// buildPackage does the same with any package of the checkout.
func buildPackage(ctx context.Context, to, arch, pkg string) (string, error) {
	name := filepath.Base(pkg)
	file := filepath.Join(to, name)
	c := exec.CommandContext(ctx, "go", "build", "-ldflags=-s -w", "-o", file, pkg)
	c.Dir = testkit.Root()
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH="+arch)
	var output strings.Builder
	c.Stdout, c.Stderr = io.Discard, &output
	if err := c.Run(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", name, err, &output)
	}
	return file, nil
}
