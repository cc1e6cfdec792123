package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/manifests/lab/supervise"
)

// programs are what every lab runs, by their names in build/bin; its databases add to them.
var programs = []string{
	"prometheus", "alertmanager", "node_exporter", "ebpf_exporter", "process-compose",
	"longhorn-engine", "longhorn-bridge", "longhorn_exporter", "plumbline-agent", "loadgen",
}

// errStarted marks a failure that leaves the lab, with its logs, for the user to see.
var errStarted = errors.New("the lab did not come up; remove it with `make lab-down`")

// startLab starts a lab and returns once every process is ready.
func startLab(ctx context.Context, o options) (*config.Lab, error) {
	lab, err := plan(o)
	if err != nil {
		return nil, err
	}
	warnMissing(lab)
	if err := preflight(lab); err != nil {
		return nil, err
	}
	if err := sandbox.Create(lab.Dir); err != nil {
		return nil, err
	}
	if err := launch(lab, o); err != nil {
		return nil, errors.Join(err, sandbox.Remove(lab.Dir))
	}
	if err := awaitReady(ctx, lab, o.wait); err != nil {
		return nil, errors.Join(errStarted, err)
	}
	return lab, nil
}

// plan finds out what the user chose and what the machine allows.
func plan(o options) (*config.Lab, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the lab mounts volumes and loads BPF programs: run it as root (sudo make demo)")
	}
	if o.interval < time.Second {
		return nil, fmt.Errorf("--interval=%s: at least 1s", o.interval)
	}
	repo, err := filepath.Abs(o.repo)
	if err != nil {
		return nil, err
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	lab := &config.Lab{
		Files: filepath.Join(repo, "manifests", "lab"), Repo: repo, Dir: filepath.Clean(o.dir), Exe: exe,
		Node: o.node, PortBase: o.portBase, Databases: strings.Fields(o.databases), Rate: o.rate, Trace: o.trace, CanaryRate: o.canaryRate, Clients: o.clients, Interval: model.Duration(o.interval), Scale: o.scale,
		Without: sandbox.Probe(),
	}
	if lab.PostgresBin, err = postgresBin(); err != nil {
		return nil, err
	}
	lab.FindGrafana()
	lab.LeftOut, err = lab.Load(strings.Fields(o.classes), lab.Without)
	return lab, err
}

// warnMissing prints, once and at the start, what this machine does not allow.
func warnMissing(lab *config.Lab) {
	for _, name := range slices.Sorted(maps.Keys(lab.LeftOut)) {
		fmt.Printf("without class %s: %s\n", name, lab.LeftOut[name])
	}
	if why := lab.Without["bpf"]; why != "" {
		fmt.Printf("without block-latency columns: %s\n", why)
	}
	if lab.GrafanaServer == "" {
		fmt.Println("without Grafana: install the package grafana, or set GRAFANA_HOME, to see the dashboards")
	}
}

// launch writes the lab's files and starts its supervisor.
func launch(lab *config.Lab, o options) error {
	for _, d := range []string{"bin", "logs", "sockets", "processes"} {
		if err := os.MkdirAll(filepath.Join(lab.Dir, d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"prometheus", "alertmanager", "grafana"} {
		if err := sandbox.MakeOwned(filepath.Join(lab.Dir, d), "nobody", 0o755); err != nil {
			return err
		}
	}
	for _, c := range lab.Classes {
		if err := sandbox.MakeOwned(c.SocketDirectory(), "postgres", 0o700); err != nil {
			return err
		}
	}
	bin := o.bin
	if bin == "" {
		bin = filepath.Join(lab.Repo, "build", "bin")
	}
	needed := slices.Clone(programs)
	for _, name := range lab.Databases {
		d, err := lab.Database(name)
		if err != nil {
			return err
		}
		needed = append(needed, d.Programs...)
	}
	for _, c := range lab.Classes {
		needed = append(needed, c.Backend.Programs...)
	}
	slices.Sort(needed)
	needed = slices.Compact(needed)
	for _, name := range needed {
		if err := copyFile(filepath.Join(bin, name), filepath.Join(lab.Bin(), name), 0o755); err != nil {
			return fmt.Errorf("%w; run `make build`, or tools/build %s", err, name)
		}
	}
	// The checkout may be below a folder, as /root, that the processes' users may not enter.
	for folder, pattern := range map[string]string{"blockio": "exporters/blockio/blkio.*", "rules": "rules/*.rules.yaml", "rules/optional": "rules/optional/*.rules.yaml", "dashboards": "dashboards/*.json"} {
		if err := copyFiles(filepath.Join(lab.Repo, pattern), filepath.Join(lab.Dir, folder)); err != nil {
			return err
		}
	}
	if err := lab.Write(); err != nil {
		return err
	}
	if err := saveOptions(lab.Dir, o); err != nil {
		return err
	}
	private := lab.Without["mount"] == ""
	argv := []string{lab.Exe, "--directory=" + lab.Dir, "supervise"}
	if private {
		argv = append(argv, "--private")
	}
	cmd := sandbox.Command(private, argv...)
	log, err := os.Create(filepath.Join(lab.Dir, "logs", "supervisor.out"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = lab.Dir
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	// The supervisor outlives this process; status and down find it by the lab's mark.
	return cmd.Process.Release()
}

// hopeless is how often a process may end before the lab is ready.
const hopeless = 3

// awaitReady follows the processes until all are up, telling of each as it comes.
func awaitReady(ctx context.Context, lab *config.Lab, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	s := supervise.At(lab.Dir)
	reported := map[string]bool{}
	start := time.Now()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var waiting []string
	var processes []supervise.Process
	var err error
	for {
		// A call that the time cuts off answers nothing: the one before it does.
		if now, failed := s.Processes(ctx); ctx.Err() == nil || processes == nil {
			processes, err = now, failed
		}
		waiting = waiting[:0]
		for _, p := range processes {
			switch {
			case p.Failed() || p.State.Restarts >= hopeless:
				return fmt.Errorf("%s ended: %s", p.Name, ending(lab.Dir, p))
			case !p.Up():
				waiting = append(waiting, p.Name)
			case !reported[p.Name]:
				reported[p.Name] = true
				fmt.Printf("%5.1fs  %s\n", time.Since(start).Seconds(), p.Name)
			}
		}
		if err == nil && len(processes) > 0 && len(waiting) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			if err != nil {
				return fmt.Errorf("%w: %s", err, lastLines(lab.Dir, "supervisor"))
			}
			return fmt.Errorf("not ready within %s: %s; their logs are in %s%s", wait, strings.Join(waiting, " "), filepath.Join(lab.Dir, "logs"), endings(lab.Dir, processes))
		case <-tick.C:
		}
	}
}

// ending describes how a process ended last, by its own words.
func ending(dir string, p supervise.Process) string {
	code := p.ExitCode
	if n := len(p.State.Recent); n > 0 && p.IsRunning {
		code = p.State.Recent[n-1].ExitCode
	}
	return fmt.Sprintf("%s, %s; %s", p.Status, supervise.ExitText(code), lastLines(dir, p.Name))
}

// endings describes, each on lines of its own, the processes that have ended by themselves.
func endings(dir string, processes []supervise.Process) string {
	var all strings.Builder
	for _, p := range processes {
		if p.Failed() || p.State.Restarts > 0 {
			fmt.Fprintf(&all, "\n%s had ended by itself: %s", p.Name, ending(dir, p))
		}
	}
	return all.String()
}

// withEndings adds to an error the processes that have ended by themselves: their logs go with the lab.
func withEndings(dir string, err error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	processes, failed := supervise.At(dir).Processes(ctx)
	if failed != nil {
		return errors.Join(err, failed)
	}
	if text := endings(dir, processes); text != "" {
		return fmt.Errorf("%w%s", err, text)
	}
	return err
}

// lastLines returns the end of what a process has logged itself, beside what its gate has, and where all of it is.
func lastLines(dir, name string) string {
	const last = 10
	path := supervise.LogPath(dir, name)
	text, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := slices.DeleteFunc(strings.Split(strings.TrimSpace(string(text)), "\n"), func(line string) bool {
		return line == "" || strings.HasPrefix(line, supervise.GatesWords)
	})
	if len(lines) == 0 {
		return "it has logged nothing in " + path
	}
	return "the end of " + path + ":\n    " + strings.Join(lines[max(len(lines)-last, 0):], "\n    ")
}

// postgresBin finds the newest PostgreSQL server on the machine.
func postgresBin() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) > 0 {
		slices.Sort(found)
		return filepath.Dir(found[len(found)-1]), nil
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		return filepath.Dir(path), nil
	}
	return "", errors.New("no PostgreSQL server on this machine; run `make packages`, or apt-get install postgresql")
}

// copyFiles copies what matches a pattern, which must be something, into a folder of its own.
func copyFiles(pattern, folder string) error {
	files, err := filepath.Glob(pattern)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("%s: no such files; the checkout is not whole", pattern)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, path := range files {
		if err := copyFile(path, filepath.Join(folder, filepath.Base(path)), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return fmt.Errorf("copying to %s: %w", to, err)
	}
	return out.Close()
}
