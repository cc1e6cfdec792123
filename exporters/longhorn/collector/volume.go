package collector

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/longhorn/types/pkg/generated/enginerpc"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// maxTrouble bounds what is remembered of a volume's failed calls; an engine may name ever new replicas.
const maxTrouble = 1000

// volume polls one volume's engine and keeps the replicas' pollers.
type volume struct {
	opts   FleetOptions
	target Target
	log    *slog.Logger
	names  map[string]string // of replicas no longer in the target, by address; not changed once the volume is polled
	cancel context.CancelFunc
	close  func()
	done   sync.WaitGroup
	polled chan struct{} // closed after the first round of every call

	mu       sync.Mutex
	sampled  sampled
	errors   map[string]uint64 // by reason
	trouble  map[string]string // what failed last time, by object and call: the reason
	metricOK bool
	measured bool                           // whether metricOK is of a call, and of none only because there was none yet
	listed   []*enginerpc.ControllerReplica // nil: unknown
	listOK   bool
	heard    bool              // the same for listOK
	state    *enginerpc.Volume // nil: unknown
	rebuilds uint64            // rebuilds seen to begin
	wo       map[string]bool   // replicas that were write-only when last seen
	pollers  map[string]*replica
	former   map[string]*replica // pollers of the former target, until this one has its own
	lastErr  error
}

func newVolume(o FleetOptions, t Target) *volume {
	v := &volume{
		opts: o, target: t, names: map[string]string{}, log: o.Log.With("volume", t.Volume), polled: make(chan struct{}),
		errors: map[string]uint64{}, trouble: map[string]string{}, wo: map[string]bool{},
		pollers: map[string]*replica{}, cancel: func() {}, close: func() {},
	}
	maps.Copy(v.names, t.names)
	for _, r := range reasons {
		v.errors[r] = 0
	}
	return v
}

// inherit continues the counters of the same volume's former poller, and keeps its last results until the first poll,
// which is soon: a target changes with each rebuild, in which nothing may look new.
func (v *volume) inherit(old *volume) {
	old.mu.Lock()
	defer old.mu.Unlock()
	v.sampled, v.errors = old.sampled, maps.Clone(old.errors)
	v.rebuilds, v.wo = old.rebuilds, old.wo
	if v.target.Backend != old.target.Backend {
		return
	}
	v.metricOK, v.listed, v.listOK, v.state = old.metricOK, old.listed, old.listOK, old.state
	v.measured, v.heard = old.measured, old.heard
	v.former = old.pollers
	v.remember(old)
}

// remember keeps the names of replicas that have left the target, as long as the engine may list them: the engine
// reports a failed replica by its address alone, which is no running replica's any more. old.mu is held.
func (v *volume) remember(old *volume) {
	listed := map[string]bool{}
	for _, r := range old.listed {
		listed[bareAddress(r.GetAddress().GetAddress())] = true
	}
	keep := func(address, name string) {
		if (old.listed == nil || listed[address]) && v.nameAt(address) == "" && len(v.names) < maxReplicas {
			v.names[address] = name
		}
	}
	for _, t := range old.target.Replicas {
		keep(t.Address, t.Name)
	}
	for address, name := range old.names {
		keep(address, name)
	}
}

// forget ends what was inherited, as a poll that fails does.
func (v *volume) forget() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.metricOK, v.listed, v.listOK, v.state, v.former = false, nil, false, nil, nil
	v.measured, v.heard = true, true
}

func (v *volume) start(parent context.Context) {
	ctx, cancel := context.WithCancel(parent)
	v.cancel = cancel
	api, err := newEngine(v.target, v.opts.dialer)
	if err != nil {
		v.failed("engine", "connect", err)
		v.forget()
		close(v.polled)
		return
	}
	var first sync.WaitGroup
	first.Add(2)
	if v.opts.Engines {
		v.done.Go(func() { v.every(ctx, v.opts.Poll.EngineInterval, &first, func() { v.pollMetrics(ctx, api) }) })
	} else {
		first.Done()
	}
	// The list of replicas is needed by either side.
	v.done.Go(func() { v.every(ctx, v.opts.Poll.StateInterval, &first, func() { v.pollState(ctx, api) }) })
	go func() {
		first.Wait()
		close(v.polled)
	}()
	v.setPollers(ctx, api)
	v.close = api.close
}

// stop ends all polling and gives the connection back.
func (v *volume) stop() {
	v.cancel()
	v.done.Wait()
	v.close()
}

// every calls f at the given interval until ctx ends. It calls first.Done after the first call. The first calls of many
// volumes are spread over one interval.
func (v *volume) every(ctx context.Context, interval time.Duration, first *sync.WaitGroup, f func()) {
	once := sync.OnceFunc(first.Done)
	defer once()
	select {
	case <-ctx.Done():
		return
	case <-time.After(rand.N(interval)):
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		if err := exporterkit.Recovered(func() error { f(); return nil }); err != nil {
			v.failed("poll", "panic", err)
		}
		once()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (v *volume) pollMetrics(ctx context.Context, api engineAPI) {
	call, cancel := context.WithTimeout(ctx, v.opts.Poll.Timeout)
	defer cancel()
	var m *enginerpc.Metrics
	err := exporterkit.Recovered(func() (err error) { m, err = api.metrics(call); return err })
	now := time.Now()
	if err == nil {
		err = checkMetrics(m)
	}
	if ctx.Err() != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.metricOK, v.measured = v.result("engine", "metrics", err), true
	if err == nil && v.target.Backend == BackendV2 {
		v.sampled.addRates(m, now)
	} else if err == nil {
		v.sampled.addWindow(m, now)
	}
}

func (v *volume) pollState(ctx context.Context, api engineAPI) {
	var replicas []*enginerpc.ControllerReplica
	var state *enginerpc.Volume
	var listErr, stateErr error
	var both sync.WaitGroup
	call, cancel := context.WithTimeout(ctx, v.opts.Poll.Timeout)
	defer cancel()
	both.Go(func() {
		listErr = exporterkit.Recovered(func() (err error) { replicas, err = api.replicas(call); return err })
	})
	both.Go(func() {
		stateErr = exporterkit.Recovered(func() (err error) { state, err = api.volume(call); return err })
	})
	both.Wait()
	if ctx.Err() != nil {
		return
	}
	if listErr == nil && len(replicas) > maxReplicas {
		listErr = badAnswer("the engine lists %d replicas, over %d", len(replicas), maxReplicas)
	}
	if listErr != nil {
		replicas = nil
	}
	if stateErr == nil {
		stateErr = v.checkState(state)
	}
	if stateErr != nil {
		state = nil
	}
	v.setState(replicas, listErr, state, stateErr)
	v.setPollers(ctx, api)
}

// checkState returns an error for impossible values in an engine's report of its volume.
func (v *volume) checkState(state *enginerpc.Volume) error {
	switch {
	case state.GetName() != v.target.Volume:
		return badAnswer("the engine reports its volume as %q", label.Value(state.GetName()))
	case state.Size < 0 || state.Size > maxSize:
		return badAnswer("the engine reports its volume to have %d bytes", state.Size)
	}
	return nil
}

func (v *volume) setState(replicas []*enginerpc.ControllerReplica, listErr error, state *enginerpc.Volume, stateErr error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.listOK, v.heard = v.result("engine", "replicas", listErr), true
	v.listed = v.distinct(replicas)
	v.result("engine", "volume", stateErr)
	v.state = state
	if listErr == nil {
		v.watchModes()
	}
}

// distinct are the replicas that an engine lists, each name once: of several the one at the address that the target
// gives it, as the engine may list a replica that began anew elsewhere with its former address, too; else the first.
func (v *volume) distinct(replicas []*enginerpc.ControllerReplica) []*enginerpc.ControllerReplica {
	each := replicas[:0:0] // nil stays nil: unknown
	at := map[string]int{}
	own := func(r *enginerpc.ControllerReplica) bool {
		return v.placed(bareAddress(r.GetAddress().GetAddress())) != ""
	}
	for _, r := range replicas {
		name := v.replicaName(r)
		i, twice := at[name]
		switch {
		case !twice:
			at[name] = len(each)
			each = append(each, r)
		case own(r) && !own(each[i]):
			each[i] = r
		}
	}
	return each
}

// watchModes counts the replicas that became write-only, which is how a rebuild begins, and
// reports modes that Longhorn did not have when this was written.
func (v *volume) watchModes() {
	wo := map[string]bool{}
	for _, r := range v.listed {
		address := bareAddress(r.GetAddress().GetAddress())
		if r.Mode == enginerpc.ReplicaMode_WO {
			wo[address] = true
			if !v.wo[address] {
				v.rebuilds++
			}
		}
		var err error
		if _, known := enginerpc.ReplicaMode_name[int32(r.Mode)]; !known {
			err = badAnswer("unknown replica mode %d", r.Mode)
		}
		v.result("replica "+v.replicaName(r), "mode", err)
	}
	v.wo = wo
}

// replicaName is the replica's name as the target gives it, or gave it, else as the engine does, else
// its address.
func (v *volume) replicaName(r *enginerpc.ControllerReplica) string {
	address := bareAddress(r.GetAddress().GetAddress())
	if name := v.nameAt(address); name != "" {
		return name
	}
	if name := r.GetAddress().GetInstanceName(); name != "" {
		return label.Value(name)
	}
	return label.Value(address)
}

// controlOf is where to call the replica at address.
func (v *volume) controlOf(address string) string {
	for _, t := range v.target.Replicas {
		if t.Address == address && t.Control != "" {
			return t.Control
		}
	}
	return address
}

// nameAt is the name of the replica at address, or of the one that was there; empty if neither is known.
func (v *volume) nameAt(address string) string {
	if name := v.placed(address); name != "" {
		return name
	}
	return v.names[address]
}

// placed is the name of the replica that the target has at address.
func (v *volume) placed(address string) string {
	for _, t := range v.target.Replicas {
		if t.Address == address {
			return t.Name
		}
	}
	return ""
}

// result counts and logs the outcome of a call; v.mu is held. It logs when a call begins to
// fail, fails for another reason, or works again, not at every poll.
func (v *volume) result(object, call string, err error) bool {
	key := object + " " + call
	before := v.trouble[key]
	if err == nil {
		if before != "" {
			delete(v.trouble, key)
			v.log.Info("answers again", "object", object, "call", call)
		}
		return true
	}
	reason := reasonOf(err)
	v.errors[reason]++
	v.lastErr = err
	if before != reason {
		if len(v.trouble) >= maxTrouble {
			clear(v.trouble) // at worst something is logged again
		}
		v.trouble[key] = reason
		v.log.Warn("poll failed", "object", label.Value(object), "call", call, "reason", reason, "err", label.Text(err.Error(), maxLogged))
	}
	return false
}

func (v *volume) failed(object, call string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.result(object, call, err)
}

// setPollers starts a poller for each replica the target or the engine names, and ends
// those of replicas that neither names any more.
func (v *volume) setPollers(ctx context.Context, api engineAPI) {
	if !v.opts.Replicas || ctx.Err() != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	names := map[string]string{}  // by address
	places := map[string]string{} // addresses by name: one replica is polled at one address
	for _, t := range v.target.Replicas {
		names[t.Address], places[t.Name] = t.Name, t.Address
	}
	if v.listed == nil {
		// The engine does not answer: keep what it named before.
		for address, r := range v.pollers {
			names[address] = r.name
		}
	}
	for _, r := range v.listed {
		address := bareAddress(r.GetAddress().GetAddress())
		if err := checkAddress(address); err != nil {
			v.result("replica "+label.Value(address), "address", badAnswer("%v", err))
			continue
		}
		name := v.replicaName(r)
		if at, taken := places[name]; taken && at != address && names[address] != name {
			continue // the list is from before the replica moved, or the engine does not know of that yet
		}
		names[address], places[name] = name, address
	}
	for address, r := range v.pollers {
		if names[address] != r.name {
			r.cancel()
			delete(v.pollers, address)
			maps.DeleteFunc(v.trouble, func(key, _ string) bool { return strings.HasPrefix(key, "replica "+r.name+" ") })
		}
	}
	for address, name := range names {
		if v.pollers[address] == nil {
			v.pollers[address] = startReplica(ctx, v, name, address, api, v.former[address])
		}
	}
	v.former = nil
}

// replicas returns the replicas' pollers by name and address.
func (v *volume) replicas() []*replica {
	v.mu.Lock()
	defer v.mu.Unlock()
	all := slices.Collect(maps.Values(v.pollers))
	slices.SortFunc(all, func(a, b *replica) int { return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.address, b.address)) })
	return all
}
