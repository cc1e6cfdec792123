package query

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"

	"github.com/plumbline/plumbline/exporters/agent/bpf/dispatcher"
	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// queryPrograms are the query collector's BPF programs, attached.
type queryPrograms struct {
	kernel   *platform.Kernel
	dispatch *platform.Dispatcher
	objects  bpf.QueryMaps
	programs map[string]*ebpf.Program
	groups   map[string]*platform.ProgramGroup // the same, each with its backup programs
	links    []io.Closer
	// adopt and snapshot run a program for each task.
	adopt, snapshot *link.Iter
	results         []exporterkit.CheckResult
	// multi is which kind of probes on user space the kernel offers.
	multi bool
	tls   *tlsProbes
	// wakes is the link of the program at wake-ups, if it is attached; traced is true if it stays.
	wakes  io.Closer
	traced bool
	// entries is how many queries of each server the kernel can count.
	entries uint32
}

// wakeProgram is the program at wake-ups. All tasks of the machine run into it, so that it is attached only where it is needed.
const wakeProgram = "task_waking"

// programsByMode are the programs that see statements begin and end, by how they come to run, with
// those that see processes begin and end.
var programsByMode = map[platform.AttachMode][]string{
	platform.Tracepoints: {"socket_received", "socket_sent", "task_executed", "task_ended"},
	platform.Functions: {"unix_received", "inet_received", "inet6_received", "unix_sent", "inet_sent", "inet6_sent",
		"task_executed", "task_ended"},
}

// bpfServerNames is SERVER_NAMES of bpf/query/query.bpf.c.
const bpfServerNames = 32

var (
	// processEventPrograms report process events. They only make known sooner what a scan would find.
	processEventPrograms = []string{"task_executed", "task_ended"}
	iterators            = []string{"adopt", "snapshot"}
	tlsPrograms          = []string{"tls_read", "tls_read_done", "tls_write"}
)

// attachedPrograms are those that this kernel needs attached for good.
func attachedPrograms(k *platform.Kernel, tracing *collector.Tracing) []string {
	created := "task_forked"
	if k.StartUnderLock {
		created = "task_started"
	}
	names := append([]string{created, "task_switched", "task_signalled"}, programsByMode[k.AttachMode]...)
	if tracing.On() {
		names = append(names, wakeProgram)
	}
	return names
}

// loadQueryPrograms loads the programs that this kernel needs and attaches them, with room for
// the statistics of so many servers and of the rest.
func loadQueryPrograms(k *platform.Kernel, names server.Programs, servers, top int, tracing *collector.Tracing, dispatch *platform.Dispatcher) (*queryPrograms, error) {
	p := &queryPrograms{kernel: k, dispatch: dispatch, entries: queryEntries(top), traced: tracing.On()}
	// Probes of the new kind (Linux 6.6) need fewer capabilities than those through perf.
	p.multi = features.HaveBPFLinkUprobeMulti() == nil
	spec, err := querySpec(k, names, servers, top, p.multi, tracing)
	if err != nil {
		return nil, err
	}
	if err := dispatch.Open(k); err != nil {
		return nil, err
	}
	collection, err := tracing.Load(spec, dispatch)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("loading BPF programs: %w", platform.Explain(err)), dispatch.Close())
	}
	p.programs = collection.Programs
	p.groups = dispatch.ProgramGroups(dispatcher.DispatcherFollowerFOLLOWS_STATEMENTS, spec, collection)
	if err := collection.Assign(&p.objects); err != nil {
		collection.Close()
		return nil, errors.Join(fmt.Errorf("loading BPF programs: %w", err), dispatch.Close())
	}
	var problems []error
	for _, name := range slices.Sorted(slices.Values(attachedPrograms(k, tracing))) {
		l, err := p.groups[name].Attach()
		optional := slices.Contains(processEventPrograms, name)
		r := exporterkit.CheckResult{Part: "query: program " + name, Err: err, Optional: optional}
		switch {
		case err == nil && name == wakeProgram:
			p.wakes = l
		case err == nil:
			p.links = append(p.links, l)
		case optional:
			r.Note = "new servers are found only at the scan interval"
			k.Features.SetUnavailable(platform.ServerProcessEvents, err)
		default:
			problems = append(problems, fmt.Errorf("attaching BPF program %s: %w", name, err))
		}
		p.results = append(p.results, r)
	}
	for i, iter := range []**link.Iter{&p.adopt, &p.snapshot} {
		name := iterators[i]
		l, err := link.AttachIter(link.IterOptions{Program: p.programs[name]})
		if err != nil {
			problems = append(problems, fmt.Errorf("attaching BPF program %s: %w", name, err))
		} else {
			*iter = l
			p.links = append(p.links, l)
		}
		p.results = append(p.results, exporterkit.CheckResult{Part: "query: program " + name, Err: err})
	}
	p.tls = newTLSProbes(p)
	if err := errors.Join(problems...); err != nil {
		return nil, errors.Join(platform.Explain(err), p.Close())
	}
	return p, nil
}

// querySpec is what is to be loaded on this kernel, for so many servers and queries of each. multi is which kind of probes
// on user space it offers.
func querySpec(k *platform.Kernel, names server.Programs, servers, top int, multi bool, tracing *collector.Tracing) (*ebpf.CollectionSpec, error) {
	spec, err := bpf.LoadQuery()
	if err != nil {
		return nil, fmt.Errorf("reading BPF programs: %w", err)
	}
	room := uint32(servers+1) * uint32(bpf.QueryCommandCOMMANDS)
	spec.Maps["statements"].MaxEntries = room
	spec.Maps["lost"].MaxEntries = uint32(servers+1) * uint32(bpf.QueryLossLOSSES)
	for _, name := range []string{"servers", "costs"} {
		spec.Maps[name].MaxEntries = uint32(servers + 1)
	}
	entries := queryEntries(top)
	if err := spec.Variables["query_entries"].Set(entries); err != nil {
		return nil, fmt.Errorf("reading BPF programs: %w", err)
	}
	for _, name := range []string{"query_ids", "queries"} {
		spec.Maps[name].MaxEntries = max(1, uint32(servers+1)*entries)
	}
	spec.Maps["flushers"].MaxEntries = uint32(servers+1) * uint32(bpf.QueryPerServerFLUSHERS)
	spec.Maps["event_pages"].MaxEntries = uint32(servers+1) * uint32(bpf.QueryPerServerEVENT_PAGES)
	if err := spec.Variables["preemptible"].Set(k.Preemptible); err != nil {
		return nil, fmt.Errorf("reading BPF programs: %w", err)
	}
	if err := spec.Variables["server_names"].Set(serverNames(names)); err != nil {
		return nil, fmt.Errorf("reading BPF programs: %w", err)
	}
	if tracing.On() {
		spec.Maps["helpers"].MaxEntries = collector.TraceHelpers
	}
	attached := attachedPrograms(k, tracing)
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool {
		return name != wakeProgram && !slices.Contains(slices.Concat(attached, iterators, tlsPrograms), name)
	})
	if err := k.AddBackups(spec); err != nil {
		return nil, err
	}
	if multi {
		for _, name := range tlsPrograms {
			spec.Programs[name].AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
	return spec, nil
}

// serverNames are the first bytes of the names of servers' programs as the kernel side compares them, each once.
func serverNames(programs server.Programs) (names [bpfServerNames]uint64) {
	const compared = 7
	n := 0
	for _, program := range programs.Names() {
		var name [8]byte
		copy(name[:compared], program)
		if number := binary.NativeEndian.Uint64(name[:]); n < len(names) && !slices.Contains(names[:n], number) {
			names[n] = number
			n++
		}
	}
	return names
}

func (p *queryPrograms) check() []exporterkit.CheckResult { return p.results }

// watchWakes attaches the program at wake-ups, or detaches it unless statements are traced.
func (p *queryPrograms) watchWakes(needed bool) error {
	if needed == (p.wakes != nil) || p.traced {
		return nil
	}
	if !needed {
		err := p.wakes.Close()
		p.wakes = nil
		return err
	}
	l, err := p.groups[wakeProgram].Attach()
	if err != nil {
		return fmt.Errorf("attaching BPF program %s: %w", wakeProgram, err)
	}
	p.wakes = l
	return nil
}

// Close detaches and unloads everything.
func (p *queryPrograms) Close() error {
	var problems []error
	if p.tls != nil {
		problems = append(problems, p.tls.close())
	}
	for _, l := range p.links {
		problems = append(problems, l.Close())
	}
	if p.wakes != nil {
		problems = append(problems, p.wakes.Close())
	}
	for _, program := range p.programs {
		problems = append(problems, program.Close())
	}
	return errors.Join(append(problems, p.objects.Close(), p.dispatch.Close())...)
}

// kernelSide is what a fleet requests from the kernel.
type kernelSide struct {
	programs *queryPrograms
	// namespace is the PID namespace of the procfs that servers are found in.
	namespace uint32
	procfs    string
	// names are those of servers' programs.
	names server.Programs
}

var errNotThere = errors.New("the process ended before it could be followed")

// adopt marks a server's processes or threads; those that it forks later inherit the mark.
func (k kernelSide) adopt(s server.Server, number uint32) error {
	if s.DBSystem.SyncsForOthers() {
		if err := k.programs.watchWakes(true); err != nil {
			return err
		}
	}
	marked, err := k.mark(bpf.QueryAdoption{
		PidNamespace: k.namespace,
		Pid:          uint32(s.PID),
		StartTicks:   s.StartTicks,
		Server:       number,
		Engine:       s.DBSystem.Protocol(),
	})
	if err == nil && marked == 0 {
		err = errNotThere
	}
	return err
}

// forget implements kernel.
func (k kernelSide) forget(s server.Server, number uint32) error {
	a := bpf.QueryAdoption{Server: number}
	if number == otherNumber {
		a.PidNamespace, a.Pid, a.StartTicks = k.namespace, uint32(s.PID), s.StartTicks
	}
	_, err := k.mark(a)
	return err
}

// detachWakes implements kernel.
func (k kernelSide) detachWakes() error { return k.programs.watchWakes(false) }

// mark makes a request for processes and threads, and returns how many were marked, or are not any more.
func (k kernelSide) mark(a bpf.QueryAdoption) (marked uint32, err error) {
	// Twice: a thread that began behind the first walk's back, from one that was not reached yet.
	for range 2 {
		if err := k.programs.objects.Adoptions.Put(uint32(0), a); err != nil {
			return marked, fmt.Errorf("requesting adoption: %w", err)
		}
		if _, err := readWalk(k.programs.adopt); err != nil {
			return marked, err
		}
		var answer bpf.QueryAdoption
		if err := k.programs.objects.Adoptions.Lookup(uint32(0), &answer); err != nil {
			return marked, fmt.Errorf("reading the adoption: %w", err)
		}
		marked += answer.Marked
	}
	return marked, nil
}

// readTLS makes a server's encrypted connections readable, if its program and library may be
// trusted. It takes as long as the kernel needs for probes.
func (k kernelSide) readTLS(s server.Server, calls *untrusted.Calls) (fileID, error) {
	library, err := untrusted.Call(calls, s.Owner(), fmt.Sprintf("TLS library of process %d", s.PID), func() (*os.File, error) {
		return k.names.OpenTrusted(k.procfs, s.PID, s.TLSLibrary)
	})
	if err != nil {
		return fileID{}, err
	}
	defer library.Close()
	return k.programs.tls.attach(library)
}

// detachTLS gives up a server's use of the probes that readTLS attached.
func (k kernelSide) detachTLS(id fileID) error { return k.programs.tls.detach(id) }

// variable finds a variable of a server's program; "" is none, at 0.
func (k kernelSide) variable(s server.Server, variable string, calls *untrusted.Calls) (uint64, error) {
	if variable == "" {
		return 0, nil
	}
	return untrusted.Call(calls, s.Owner(), fmt.Sprintf("program of process %d", s.PID), func() (uint64, error) {
		return server.VariableAddress(k.procfs, s.PID, variable)
	})
}

// describe implements kernel.
func (k kernelSide) describe(number uint32, s observation) error {
	d := bpf.QueryServer{WaitEvent: s.waitEvent, StatusSize: s.StatusSize()}
	if d.StatusSize > 0 {
		d.Status = s.status
	}
	copy(d.Ports[:], s.ClientPorts())
	return k.programs.objects.Servers.Put(number, d)
}

// clear empties the place of a server's statistics for the next one.
func (k kernelSide) clear(number uint32) error {
	zero := make([]bpf.QueryStats, ebpf.MustPossibleCPU())
	for command := range bpf.QueryCommandCOMMANDS {
		if err := k.programs.objects.Statements.Put(statementsIndex(number, command), zero); err != nil {
			return fmt.Errorf("clearing statistics: %w", err)
		}
	}
	none := make([]uint64, ebpf.MustPossibleCPU())
	for reason := range bpf.QueryLossLOSSES {
		if err := k.programs.objects.Lost.Put(lossIndex(number, reason), none); err != nil {
			return fmt.Errorf("clearing losses: %w", err)
		}
	}
	const flushers, pages = uint32(bpf.QueryPerServerFLUSHERS), uint32(bpf.QueryPerServerEVENT_PAGES)
	for i := range flushers {
		if err := k.programs.objects.Flushers.Put(number*flushers+i, bpf.QueryFlusher{}); err != nil {
			return fmt.Errorf("clearing flushers: %w", err)
		}
	}
	for i := range pages {
		if err := k.programs.objects.EventPages.Put(number*pages+i, bpf.QueryEventPage{}); err != nil {
			return fmt.Errorf("clearing events: %w", err)
		}
	}
	for i := range k.programs.entries {
		if err := k.empty(number, i); err != nil {
			return err
		}
	}
	if err := k.programs.objects.Costs.Put(number, make([]uint64, ebpf.MustPossibleCPU())); err != nil {
		return fmt.Errorf("clearing the cost: %w", err)
	}
	return nil
}

// statementsIndex is the index in the map statements of a server's statements of one command.
func statementsIndex(number uint32, command bpf.QueryCommand) uint32 {
	return number*uint32(bpf.QueryCommandCOMMANDS) + uint32(command)
}

// lossIndex is the index in the map lost of what the kernel lost of a server for one reason.
func lossIndex(number uint32, reason bpf.QueryLoss) uint32 {
	return number*uint32(bpf.QueryLossLOSSES) + uint32(reason)
}

// read returns a server's statistics.
func (k kernelSide) read(number uint32) (totals, error) {
	var t totals
	var problems []error
	for reason := range bpf.QueryLossLOSSES {
		n, err := k.lost(number, reason)
		if err != nil {
			problems = append(problems, err)
		}
		t.lost[reason] = n
	}
	for command := range bpf.QueryCommandCOMMANDS {
		var perCPU []bpf.QueryStats
		if err := k.programs.objects.Statements.Lookup(statementsIndex(number, command), &perCPU); err != nil {
			problems = append(problems, fmt.Errorf("statistics: %w", err))
			continue
		}
		for i := range perCPU {
			t.commands[command].add(&perCPU[i])
		}
	}
	var perCPU []uint64
	if err := k.programs.objects.Costs.Lookup(number, &perCPU); err != nil {
		problems = append(problems, fmt.Errorf("cost: %w", err))
	}
	for _, ns := range perCPU {
		t.own += ns
	}
	return t, errors.Join(problems...)
}

// unmarked counts the processes and threads of a server that the kernel had no memory for.
func (k kernelSide) unmarked(number uint32) (uint64, error) {
	return k.lost(number, bpf.QueryLossLOST_TASK)
}

// lost counts what the kernel lost of a server for one reason.
func (k kernelSide) lost(number uint32, reason bpf.QueryLoss) (uint64, error) {
	n, err := collector.OnAllCPUs(k.programs.objects.Lost, lossIndex(number, reason))
	if err != nil {
		return 0, fmt.Errorf("losses: %w", err)
	}
	return n, nil
}

// retiredEntry is ENTRY_RETIRED of bpf/query/query_id.h.
const retiredEntry = ^uint64(0)

// entries implements kernel.
func (k kernelSide) entries(number uint32) (all []entry, err error) {
	for index := range k.programs.entries {
		p := entry{index: index}
		at := number*k.programs.entries + index
		if err := k.programs.objects.QueryIds.Lookup(at, &p.id); err != nil {
			return nil, fmt.Errorf("query identifiers: %w", err)
		}
		if p.id == 0 {
			continue
		}
		if err := k.programs.objects.Queries.Lookup(at, &p.amounts); err != nil {
			return nil, fmt.Errorf("queries: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

// retire implements kernel.
func (k kernelSide) retire(number, index uint32) error {
	return k.programs.objects.QueryIds.Put(number*k.programs.entries+index, retiredEntry)
}

// empty implements kernel.
func (k kernelSide) empty(number, index uint32) error {
	at := number*k.programs.entries + index
	return errors.Join(k.programs.objects.Queries.Put(at, bpf.QueryPerQuery{}), k.programs.objects.QueryIds.Put(at, uint64(0)))
}
