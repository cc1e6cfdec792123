package collector

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// queryPrograms are the query collector's BPF programs, attached.
type queryPrograms struct {
	objects bpf.QueryObjects
	links   []io.Closer
	// adopt and census run a program for each task.
	adopt, census *link.Iter
	results       []exporterkit.CheckResult
	// multi tells which kind of probes on user space the kernel offers.
	multi bool
	tls   tlsProbes
}

// loadQueryPrograms loads the programs and attaches them to the kernel, with room for the
// statistics of so many servers and of the rest.
func loadQueryPrograms(servers int) (*queryPrograms, error) {
	p := &queryPrograms{}
	spec, err := bpf.LoadQuery()
	if err != nil {
		return nil, fmt.Errorf("reading BPF programs: %w", err)
	}
	room := uint32(servers+1) * uint32(bpf.QueryCommandCOMMANDS)
	spec.Maps["statements"].MaxEntries = room
	spec.Maps["lost"].MaxEntries = uint32(servers+1) * uint32(bpf.QueryLossLOSSES)
	spec.Maps["servers"].MaxEntries = uint32(servers + 1)
	// Probes of the new kind (Linux 6.6) need fewer capabilities than those through perf.
	if p.multi = features.HaveBPFLinkUprobeMulti() == nil; p.multi {
		for _, name := range []string{"tls_read", "tls_read_done", "tls_write"} {
			spec.Programs[name].AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	if err := spec.LoadAndAssign(&p.objects, nil); err != nil {
		return nil, fmt.Errorf("loading BPF programs: %w", explain(err))
	}
	var problems []error
	byName := p.byName()
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		program := byName[name]
		if program.Type() != ebpf.Tracing || name == "adopt" || name == "census" {
			continue
		}
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		optional := name == "task_executed" || name == "task_ended"
		r := exporterkit.CheckResult{Part: "query: program " + name, Err: err, Optional: optional}
		switch {
		case err == nil:
			p.links = append(p.links, l)
		case optional:
			r.Note = "new servers are found only at the scan interval"
		default:
			problems = append(problems, fmt.Errorf("attaching BPF program %s: %w", name, err))
		}
		p.results = append(p.results, r)
	}
	for _, w := range []struct {
		name    string
		program *ebpf.Program
		iter    **link.Iter
	}{{"adopt", p.objects.Adopt, &p.adopt}, {"census", p.objects.Census, &p.census}} {
		iter, err := link.AttachIter(link.IterOptions{Program: w.program})
		if err != nil {
			problems = append(problems, fmt.Errorf("attaching BPF program %s: %w", w.name, err))
		} else {
			*w.iter = iter
			p.links = append(p.links, iter)
		}
		p.results = append(p.results, exporterkit.CheckResult{Part: "query: program " + w.name, Err: err})
	}
	p.tls = tlsProbes{programs: p, probes: map[fileID]*libraryProbes{}}
	if err := errors.Join(problems...); err != nil {
		return nil, errors.Join(explain(err), p.Close())
	}
	return p, nil
}

func (p *queryPrograms) byName() map[string]*ebpf.Program {
	return map[string]*ebpf.Program{
		"socket_received": p.objects.SocketReceived,
		"socket_sent":     p.objects.SocketSent,
		"task_switched":   p.objects.TaskSwitched,
		"task_forked":     p.objects.TaskForked,
		"task_executed":   p.objects.TaskExecuted,
		"task_ended":      p.objects.TaskEnded,
		"adopt":           p.objects.Adopt,
		"census":          p.objects.Census,
		"tls_read":        p.objects.TlsRead,
		"tls_read_done":   p.objects.TlsReadDone,
		"tls_write":       p.objects.TlsWrite,
	}
}

func (p *queryPrograms) check() []exporterkit.CheckResult { return p.results }

// Close detaches and unloads everything.
func (p *queryPrograms) Close() error {
	problems := []error{p.tls.close()}
	for _, l := range p.links {
		problems = append(problems, l.Close())
	}
	return errors.Join(append(problems, p.objects.Close())...)
}

// kernelSide is what a fleet asks of the kernel.
type kernelSide struct {
	programs *queryPrograms
	// namespace is the PID namespace of the procfs that servers are found in.
	namespace uint32
	procfs    string
}

var engines = map[server.Engine]bpf.QueryEngine{
	server.PostgreSQL: bpf.QueryEnginePOSTGRESQL,
	server.MySQL:      bpf.QueryEngineMYSQL,
	server.MariaDB:    bpf.QueryEngineMYSQL,
}

var errNotThere = errors.New("the process ended before it could be followed")

// adopt marks a server's processes or threads; those that it forks later inherit the mark.
func (k kernelSide) adopt(s server.Server, number uint32) error {
	a := bpf.QueryAdoption{
		PidNamespace: k.namespace,
		Pid:          uint32(s.PID),
		StartTicks:   s.StartTicks,
		Server:       number,
		Engine:       engines[s.Engine],
	}
	marked := uint32(0)
	// Twice: a thread that began behind the first walk's back, from one not marked yet.
	for range 2 {
		if err := k.programs.objects.Adoptions.Put(uint32(0), a); err != nil {
			return fmt.Errorf("asking for adoption: %w", err)
		}
		if err := walk(k.programs.adopt); err != nil {
			return err
		}
		var answer bpf.QueryAdoption
		if err := k.programs.objects.Adoptions.Lookup(uint32(0), &answer); err != nil {
			return fmt.Errorf("reading the adoption: %w", err)
		}
		marked += answer.Marked
	}
	if marked == 0 {
		return errNotThere
	}
	return nil
}

// walk runs a program once for each task.
func walk(iter *link.Iter) error {
	tasks, err := iter.Open()
	if err != nil {
		return fmt.Errorf("walking the tasks: %w", err)
	}
	defer tasks.Close()
	if _, err := io.Copy(io.Discard, tasks); err != nil {
		return fmt.Errorf("walking the tasks: %w", err)
	}
	return nil
}

// census returns how many processes or threads are followed, by server number.
func (k kernelSide) census() ([maxServers + 1]uint64, error) {
	var p bpf.QueryPopulation
	if err := k.programs.objects.Populations.Put(uint32(0), p); err != nil {
		return p.Backends, fmt.Errorf("asking for a census: %w", err)
	}
	if err := walk(k.programs.census); err != nil {
		return p.Backends, err
	}
	if err := k.programs.objects.Populations.Lookup(uint32(0), &p); err != nil {
		return p.Backends, fmt.Errorf("reading the census: %w", err)
	}
	return p.Backends, nil
}

// readTLS makes a server's encrypted connections readable.
func (k kernelSide) readTLS(library string) (fileID, error) { return k.programs.tls.attach(library) }

// leaveTLS is the end of that.
func (k kernelSide) leaveTLS(id fileID) error { return k.programs.tls.detach(id) }

// waitEvent finds the variable in which PostgreSQL's processes say what they wait for.
func (k kernelSide) waitEvent(s server.Server) (uint64, error) {
	if s.Engine != server.PostgreSQL {
		return 0, nil
	}
	return server.VariableAddress(k.procfs, s.PID, server.WaitEventVariable)
}

// describe tells which TCP ports a server listens on and where it says what it waits for.
func (k kernelSide) describe(number uint32, ports []uint16, waitEvent uint64) error {
	s := bpf.QueryServer{WaitEvent: waitEvent}
	copy(s.Ports[:], ports)
	return k.programs.objects.Servers.Put(number, s)
}

// clear empties the place of a server's statistics for the next one.
func (k kernelSide) clear(number uint32) error {
	zero := make([]bpf.QueryStats, ebpf.MustPossibleCPU())
	for command := range bpf.QueryCommandCOMMANDS {
		if err := k.programs.objects.Statements.Put(entry(number, command), zero); err != nil {
			return fmt.Errorf("clearing statistics: %w", err)
		}
	}
	none := make([]uint64, ebpf.MustPossibleCPU())
	for reason := range bpf.QueryLossLOSSES {
		if err := k.programs.objects.Lost.Put(lossEntry(number, reason), none); err != nil {
			return fmt.Errorf("clearing losses: %w", err)
		}
	}
	return nil
}

// entry is where the kernel counts a server's statements of one command.
func entry(number uint32, command bpf.QueryCommand) uint32 {
	return number*uint32(bpf.QueryCommandCOMMANDS) + uint32(command)
}

// lossEntry is where the kernel counts what it lost of a server, by reason.
func lossEntry(number uint32, reason bpf.QueryLoss) uint32 {
	return number*uint32(bpf.QueryLossLOSSES) + uint32(reason)
}

// read returns a server's statistics.
func (k kernelSide) read(number uint32) (totals, error) {
	var t totals
	var problems []error
	for reason := range bpf.QueryLossLOSSES {
		var perCPU []uint64
		if err := k.programs.objects.Lost.Lookup(lossEntry(number, reason), &perCPU); err != nil {
			problems = append(problems, fmt.Errorf("losses: %w", err))
		}
		for _, n := range perCPU {
			t.lost[reason] += n
		}
	}
	for command := range bpf.QueryCommandCOMMANDS {
		var perCPU []bpf.QueryStats
		if err := k.programs.objects.Statements.Lookup(entry(number, command), &perCPU); err != nil {
			problems = append(problems, fmt.Errorf("statistics: %w", err))
			continue
		}
		for i := range perCPU {
			t.commands[command].add(&perCPU[i])
		}
	}
	return t, errors.Join(problems...)
}

// pidNamespace returns the number of the PID namespace whose PIDs a procfs shows. It must be
// the agent's own: the kernel walks only the tasks of the namespace of whoever asks.
func pidNamespace(procfs string) (uint32, error) {
	status, err := os.ReadFile(filepath.Join(procfs, "self", "status"))
	if err != nil {
		return 0, fmt.Errorf("the agent is not among the processes of %s: %w", procfs, err)
	}
	for line := range strings.Lines(string(status)) {
		// One PID for each namespace from the procfs's own down to the agent's.
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok && len(strings.Fields(pids)) != 1 {
			return 0, fmt.Errorf("%s shows the processes of another PID namespace than the agent's, which cannot be followed from there; "+
				"run the agent in that one (hostPID: true in Kubernetes)", procfs)
		}
	}
	info, err := os.Stat(filepath.Join(procfs, "self", "ns", "pid"))
	if err != nil {
		return 0, fmt.Errorf("the agent's PID namespace: %w", err)
	}
	return uint32(info.Sys().(*syscall.Stat_t).Ino), nil
}

// checkRunDelay tells whether the kernel accounts for the time a task waits for a CPU.
func checkRunDelay(procfs string) exporterkit.CheckResult {
	r := exporterkit.CheckResult{Part: "query: phase runqueue", Optional: true}
	text, err := os.ReadFile(filepath.Join(procfs, "self", "schedstat"))
	switch fields := strings.Fields(string(text)); {
	case err != nil:
		r.Err = err
	case len(fields) != 3 || fields[2] == "0":
		r.Err = errors.New("the kernel keeps no scheduling statistics (CONFIG_SCHED_INFO)")
	}
	if r.Err != nil {
		r.Note = "the wait for a CPU after a wake-up counts to what the statement waited for"
	}
	return r
}
