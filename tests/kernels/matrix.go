package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plumbline/plumbline/tests/kernels/job"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/pgserver"
	"github.com/plumbline/plumbline/tests/results/rows"
)

// matrix measures agent and blockio on kernels.
type matrix struct {
	guest      guest  // what the guests have in common
	agent      string // the agent's program
	statements int
	replica    bool   // run a Longhorn engine, too
	folder     string // where each kernel's console and outcome are kept
	atOnce     int    // so many kernels side by side; an emulator keeps one CPU busy
}

// measured is what one kernel gave.
type measured struct {
	kernel  kernel
	boot    float64 // seconds from the kernel's start to the guest's first program
	outcome outcome.Outcome
	err     error // the kernel could not be measured at all
}

// failed returns what is wrong.
func (m measured) failed() []string {
	if m.err != nil {
		return []string{m.err.Error()}
	}
	return m.outcome.Wrong()
}

// run measures on each kernel of the series, as many at once as configured.
func (m matrix) run(ctx context.Context, series []string) ([]measured, error) {
	chosen, folders, root, err := prepare(ctx, m.guest.arch, series)
	if err != nil {
		return nil, err
	}
	m.guest.root = root
	programs, err := os.MkdirTemp("", "plumbline-kernels-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(programs)
	if m.guest.init, err = buildProgram(ctx, programs, m.guest.arch, "init"); err != nil {
		return nil, err
	}
	program, err := buildProgram(ctx, programs, m.guest.arch, "guest")
	if err != nil {
		return nil, err
	}
	if m.agent, err = m.program(ctx, programs); err != nil {
		return nil, err
	}
	target, err := buildPackage(ctx, programs, m.guest.arch, "./tests/nvmetcp/target")
	if err != nil {
		return nil, err
	}
	// Made here, once: in the emulator it takes half a minute.
	initdb, err := pgserver.Tool("initdb")
	if err != nil {
		return nil, err
	}
	template := filepath.Join(programs, "data")
	if err := pgserver.Template(initdb, template); err != nil {
		return nil, err
	}
	m.guest.command = []string{program, "--agent=" + m.agent, "--target=" + target, "--template=" + template, "--statements=" + strconv.Itoa(m.statements)}
	if foreign(m.guest.arch) {
		if err := m.carry(ctx, programs); err != nil {
			return nil, err
		}
	}
	if !m.replica {
		m.guest.command = append(m.guest.command, "--no-replica")
	}
	m.guest.dir = "/"
	all := make([]measured, len(chosen))
	var side errgroup.Group
	side.SetLimit(max(1, m.atOnce))
	for i, k := range chosen {
		side.Go(func() error {
			m := m // each with a guest of its own
			m.guest.folder, m.guest.release = folders[i], k.release
			all[i].kernel = k
			all[i].err = m.one(ctx, &all[i])
			return ctx.Err()
		})
	}
	return all, side.Wait()
}

// program returns the agent's program where the guest sees it: on a root of its own, in the folder programs.
func (m matrix) program(ctx context.Context, programs string) (string, error) {
	switch {
	case !foreign(m.guest.arch):
		return filepath.Abs(cmp.Or(m.agent, "build/bin/plumbline-agent"))
	case m.agent == "":
		return buildPackage(ctx, programs, m.guest.arch, "./exporters/agent")
	}
	file := filepath.Join(programs, "agent")
	text, err := os.ReadFile(m.agent)
	if err != nil {
		return "", err
	}
	return file, os.WriteFile(file, text, 0o755)
}

// one measures on one kernel. A run that did not end is retried once; a number that was measured is never measured
// again.
func (m matrix) one(ctx context.Context, to *measured) (err error) {
	for try := range 2 {
		if err = m.boot(ctx, to); !errors.Is(err, errCrashed) {
			return err
		}
		logf("%s, attempt %d: %v", to.kernel.release, try+1, err)
	}
	return err
}

func (m matrix) boot(ctx context.Context, to *measured) error {
	share := filepath.Join(m.folder, to.kernel.release)
	leave, err := m.guest.settle(share, 2048, progress(to.kernel.series))
	if err != nil {
		return err
	}
	defer leave()
	logf("%s: booting %s", to.kernel.series, to.kernel.release)
	began := time.Now()
	code, err := boot(ctx, m.guest)
	if err != nil {
		return err
	}
	if code != 0 {
		return fmt.Errorf("the measuring program in the guest of %s ended with %d; %s has the reason", to.kernel.release, code, filepath.Join(share, consoleLog))
	}
	logf("%s: done after %.0f s", to.kernel.series, time.Since(began).Seconds())
	up, _, err := readStamp(filepath.Join(share, job.Booted))
	if err != nil {
		return err
	}
	to.boot = up.Seconds()
	text, err := os.ReadFile(filepath.Join(share, "outcome.json"))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, &to.outcome)
}

// progress is a kernel's series, and prints the console's lines that the guest's program means for it.
type progress string

// Write gets whole lines.
func (p progress) Write(line []byte) (int, error) {
	if text, ok := strings.CutPrefix(string(line), "guest: "); ok {
		logf("%s: %s", string(p), strings.TrimSpace(text))
	}
	return len(line), nil
}

// columns are the matrix's, with what an outcome has in each.
var columns = []struct {
	name string
	cell func(measured) string
}{
	{"boot", func(m measured) string { return fmt.Sprintf("%.0f s", m.boot) }},
	{"query", func(m measured) string { return works(m.outcome.Query) }},
	{"statements counted", func(m measured) string { return counted(m.outcome.Query, m.outcome.Statements) }},
	{"phases beyond the duration", func(m measured) string {
		if !m.outcome.Query.Works {
			return "-"
		}
		return fmt.Sprintf("%.3f ms of %.0f", 1e3*(m.outcome.Phases-m.outcome.Duration), 1e3*m.outcome.Duration)
	}},
	{"sleeps: wait", func(m measured) string {
		if !m.outcome.Query.Works {
			return "-"
		}
		return fmt.Sprintf("%.3f of %.3f s", m.outcome.Waited, m.outcome.Slept)
	}},
	{"missed runs", func(m measured) string {
		n, _ := m.outcome.MissedRuns()
		if m.outcome.Backups && n > 0 {
			return fmt.Sprintf("at most %d", n)
		}
		return strconv.FormatUint(n, 10)
	}},
	{"lost", func(m measured) string { return strconv.FormatUint(m.outcome.Lost, 10) }},
	{"replica", func(m measured) string { return works(m.outcome.Replica) }},
	{"requests to replicas counted", func(m measured) string { return counted(m.outcome.Replica, m.outcome.Requests) }},
	{"nvme", func(m measured) string { return works(m.outcome.NVMe) }},
	{"NVMe/TCP commands counted", func(m measured) string { return counted(m.outcome.NVMe, m.outcome.NVMePaths.Commands) }},
	{"delays of link, disk", func(m measured) string { return delays(m.outcome.NVMe, m.outcome.NVMePaths) }},
	{"iscsi", func(m measured) string { return works(m.outcome.ISCSI) }},
	{"iSCSI commands counted", func(m measured) string { return counted(m.outcome.ISCSI, m.outcome.ISCSIPaths.Commands) }},
	{"iSCSI: delays of link, disk", func(m measured) string { return delays(m.outcome.ISCSI, m.outcome.ISCSIPaths) }},
	{"blockio", func(m measured) string { return works(m.outcome.Blockio) }},
	{"block requests counted", func(m measured) string { return counted(m.outcome.Blockio, m.outcome.Disk) }},
}

func works(f outcome.Feature) string {
	if f.Works {
		return "yes"
	}
	return "no"
}

func counted(f outcome.Feature, c []outcome.Count) string {
	if !f.Works {
		return "-"
	}
	truth, n := outcome.Sum(c)
	return fmt.Sprintf("%d of %d", n, truth)
}

// delays are what was seen of each, and the truth.
func delays(f outcome.Feature, seen outcome.Remote) string {
	if !f.Works || len(seen.Delays) == 0 {
		return "-"
	}
	var text []string
	for _, d := range seen.Delays {
		text = append(text, fmt.Sprintf("%.1f of %.1f ms", 1e3*d.Added(), 1e3*d.Truth))
	}
	return strings.Join(text, ", ")
}

// print writes the matrix, and below it what does not work or is wrong.
func printMatrix(w io.Writer, all []measured) {
	fmt.Fprint(w, "| kernel ")
	for _, c := range columns {
		fmt.Fprintf(w, "| %s ", c.name)
	}
	fmt.Fprintln(w, "|")
	fmt.Fprintln(w, strings.Repeat("|---", len(columns)+1)+"|")
	for _, m := range all {
		fmt.Fprintf(w, "| %s ", m.kernel.release)
		for _, c := range columns {
			cell := "?"
			if m.err == nil {
				cell = c.cell(m)
			}
			fmt.Fprintf(w, "| %s ", cell)
		}
		fmt.Fprintln(w, "|")
	}
	fmt.Fprintln(w)
	for _, m := range all {
		features := m.outcome.Features()
		for _, name := range slices.Sorted(maps.Keys(features)) {
			if f := features[name]; m.err == nil && !f.Works {
				fmt.Fprintf(w, "%s: no %s: %s\n", m.kernel.series, name, f.Why)
			}
		}
		for _, f := range m.failed() {
			fmt.Fprintf(w, "%s: WRONG: %s\n", m.kernel.series, f)
		}
	}
}

// record adds the matrix's rows to the results.
func record(folder, command string, all []measured) (err error) {
	out, err := rows.Open(folder, "kernels", command)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	for _, m := range all {
		if m.err != nil {
			continue
		}
		var cells []string
		for _, c := range columns {
			cells = append(cells, c.name, c.cell(m))
		}
		out.Add("Debian's kernels, emulated", m.kernel.release, cells...)
	}
	return nil
}
