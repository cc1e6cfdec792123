package soak

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/result"
)

const (
	// progressEvery is how often progress is logged.
	progressEvery = time.Minute
	// penalty is the least response time of a transaction that failed or was skipped.
	penalty = 10 * time.Second
)

// Soak is a soak under way.
type Soak struct {
	plan  Plan
	store *store
	clock clock
	// presently reads the clocks that show a suspended machine; a test may read others.
	presently func() (moment, error)
	began     time.Time
	events    []Event // of earlier starts
	over      bool    // an earlier start has run to the plan's end
	set       *metrics.Set
	own       *driver.OwnMetrics
	progress  prometheus.Gauge
	faults    *prometheus.GaugeVec
	unsaved   prometheus.Counter
	log       *slog.Logger

	tables map[string]*sync.Mutex // by class: its tables are made by one load at a time

	mu    sync.Mutex
	loads map[running]bool
}

// running is one load on one class.
type running struct {
	name, class string
	load        *metrics.Load
	driver      *driver.Driver
	recorded    *recordedOutages
}

// recordedOutages has when the last of a load's outages began that the folder has.
type recordedOutages struct {
	mu    sync.Mutex
	until time.Time
}

// Open begins the soak of plan in folder, or goes on with it after a restart.
func Open(folder string, plan Plan, registry prometheus.Registerer, log *slog.Logger) (*Soak, error) {
	store, data, err := open(folder, plan, time.Now())
	if err != nil {
		return nil, err
	}
	s := &Soak{plan: plan, store: store, clock: wallClock, presently: presently, began: data.Began, events: data.Events, over: isOver(data.Events), log: log, loads: map[running]bool{},
		tables: map[string]*sync.Mutex{}, set: metrics.NewSet(registry), own: driver.NewOwnMetrics(registry),
		progress: prometheus.NewGauge(prometheus.GaugeOpts{Name: "loadgen_soak_progress_ratio", Help: "Share of the soak's duration that is over."}),
		faults: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "loadgen_soak_fault",
			Help: "1 while a fault of the soak's plan is in effect, 0 else."}, []string{"fault"}),
		unsaved: prometheus.NewCounter(prometheus.CounterOpts{Name: "loadgen_soak_unsaved_total",
			Help: "Samples and events that could not be written to the soak's folder and are lost for its report."}),
	}
	for _, t := range plan.Targets {
		s.tables[t.StorageClass] = &sync.Mutex{}
	}
	registry.MustRegister(s.progress, s.faults, s.unsaved)
	if store.unlocked != nil {
		log.Warn("the soak's folder cannot be locked, so that nothing keeps another soak from it", "err", store.unlocked)
	}
	for _, file := range store.lost(folder) {
		s.unsaved.Inc()
		log.Warn("the last line is only half there, and lost: the soak was killed while it wrote it", "file", file)
	}
	if !s.over {
		for _, what := range plan.unfit() {
			log.Warn("the plan does not fit in its duration", "duration", plan.Duration, "what", what)
		}
	}
	return s, nil
}

// Run runs what is left of the soak, until it is over or ctx ends. Faults that are in effect at
// the end are mended. If it was over already it stays until ctx ends.
func (s *Soak) Run(ctx context.Context) error {
	if s.over {
		return s.stay(ctx)
	}
	last := s.began.Add(s.plan.Duration)
	ctx, cancel := s.clock.deadline(ctx, last)
	defer cancel()
	s.note(SoakEvent, "soak", Begin, "")
	if n := len(s.events); n > 0 {
		s.log.Info("going on with a soak", "began", s.began, "left", time.Until(last).Round(time.Second))
	}
	sampling, stopSampling := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSampling()
	var working, watching sync.WaitGroup
	watching.Go(func() { s.sample(sampling) })
	for _, t := range s.plan.Targets {
		working.Go(func() { s.run(ctx, "canary", s.plan.Canary, t) })
	}
	for _, p := range s.plan.Phases {
		working.Go(func() { s.phase(ctx, p) })
	}
	for _, f := range s.plan.Faults {
		working.Go(func() { s.fault(ctx, f) })
	}
	<-ctx.Done()
	what := "interrupted"
	if s.clock.since(last) >= 0 {
		what = Over
	}
	working.Wait() // for minutes, if a fault is mended
	stopSampling()
	watching.Wait()
	s.note(SoakEvent, "soak", End, what)
	return s.store.close()
}

// run runs one load on one class until ctx ends.
func (s *Soak) run(ctx context.Context, name string, l Load, t matrix.Target) {
	config := l.config(t)
	labels := metrics.Labels{Tool: "canary", Profile: config.Label(), Database: t.StorageClass, StorageClass: t.StorageClass}
	if name != "canary" {
		labels.Tool = "soak-" + name
	}
	load := s.set.Load(labels, metrics.Options{Target: l.Rate, Penalty: penalty})
	d, err := driver.New(config, load, s.own, s.log)
	if err != nil {
		s.log.Error("load cannot run", "load", name, "storageclass", t.StorageClass, "err", err)
		s.note(PhaseEvent, name+" on "+t.StorageClass, Failed, err.Error())
		return
	}
	retry := adapter.Supervisor{Load: load, Log: s.log}
	load.SetPhase(metrics.Init)
	var down unreached
	err = retry.Retry(ctx, "making loadgen's tables on "+t.StorageClass, func(ctx context.Context) error {
		s.tables[t.StorageClass].Lock()
		defer s.tables[t.StorageClass].Unlock()
		began := time.Now()
		err := d.Init(ctx)
		if err != nil && ctx.Err() != nil {
			return err // the end of the load
		}
		return down.tried(ctx, began, time.Now(), err)
	})
	s.keepUnreached(name, t.StorageClass, &down)
	if err != nil {
		load.SetPhase(metrics.Stopped)
		if ctx.Err() == nil {
			s.log.Error("load cannot run", "load", name, "storageclass", t.StorageClass, "err", err)
			s.note(PhaseEvent, name+" on "+t.StorageClass, Failed, err.Error())
		}
		return
	}
	load.ResetTally()
	r := running{name, t.StorageClass, load, d, &recordedOutages{}}
	s.mu.Lock()
	s.loads[r] = true
	s.mu.Unlock()
	d.Run(ctx)
	s.mu.Lock()
	delete(s.loads, r)
	s.mu.Unlock()
	s.keep(r, time.Now(), true)
}

// phase runs a phase's load at its times.
func (s *Soak) phase(ctx context.Context, p Phase) {
	for {
		from, to, ok := p.window(s.clock.since(s.began), s.plan.Duration)
		if !ok || !s.clock.until(ctx, s.began.Add(from)) {
			return
		}
		now, cancel := s.clock.deadline(ctx, s.began.Add(to))
		s.note(PhaseEvent, p.Name, Begin, fmt.Sprintf("%s at %g/s", p.Profile, p.Rate))
		var working sync.WaitGroup
		for _, t := range s.plan.Targets {
			working.Go(func() { s.run(now, p.Name, p.Load, t) })
		}
		<-now.Done()
		working.Wait()
		cancel()
		s.note(PhaseEvent, p.Name, End, "")
	}
}

// sample keeps a sample of each load at each interval.
func (s *Soak) sample(ctx context.Context) {
	tick := time.NewTicker(s.plan.Interval)
	defer tick.Stop()
	logged := time.Now()
	before, err := s.presently()
	if err != nil {
		s.log.Error("suspends and steps of the clock are not seen", "err", err)
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err == nil {
			before = s.watch(before)
		}
		now := time.Now()
		s.mu.Lock()
		var loads []running
		for r := range s.loads {
			loads = append(loads, r)
		}
		s.mu.Unlock()
		for _, r := range loads {
			s.keep(r, now, false)
		}
		share := min(now.Sub(s.began).Seconds()/s.plan.Duration.Seconds(), 1)
		s.progress.Set(share)
		if now.Sub(logged) >= progressEvery {
			logged = now
			s.log.Info("soaking", "done", fmt.Sprintf("%.1f %%", share*100), "left", (s.plan.Duration - now.Sub(s.began)).Round(time.Second))
		}
	}
}

// keep writes what a load has done since the last time; ended is whether it does no more.
func (s *Soak) keep(r running, at time.Time, ended bool) {
	t := r.load.Take()
	v := Sample{Time: at.UTC(), StorageClass: r.class, Load: r.name, Offered: t.Offered, Completed: t.Completed,
		Skipped: t.Skipped[metrics.Late], Response: t.Response, Service: t.Service}
	for _, n := range t.Errors {
		v.Failed += n
	}
	v.Saturated, _ = r.driver.Saturated()
	v.Outages = r.recorded.news(r.driver, ended)
	s.saved(s.store.sample(v))
}

// news are the outages that ended since the last call, and at the load's end the one that did not.
func (t *recordedOutages) news(d *driver.Driver, ended bool) (news []result.Outage) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all, _ := d.Outages()
	for _, o := range all {
		if (o.Over || ended) && o.Began.After(t.until) {
			news = append(news, o.Result())
			t.until = o.Began
		}
	}
	return news
}

// note logs an event and keeps it; the error is counted and logged.
func (s *Soak) note(kind, name, what, detail string) error {
	s.log.Info("soak: "+kind, "name", name, "what", what, "detail", detail)
	err := s.store.event(Event{time.Now().UTC(), kind, name, what, detail})
	s.saved(err)
	return err
}

// saved counts and logs what could not be written, as on a full disk; the soak goes on.
func (s *Soak) saved(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		s.unsaved.Inc()
		s.log.Error("soak's folder", "err", err)
	}
}
