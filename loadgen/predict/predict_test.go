package predict

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// world is a made-up database: what it does is known, so that a prediction can be compared with what would be.
type world struct {
	clients int
	think   float64
	own     own
	sync    func(r *rand.Rand) float64
	reads   float64
	read    func(r *rand.Rand) float64
	silent  bool // commits do not sync
	lock    float64
}

func constantly(seconds float64) func(*rand.Rand) float64 {
	return func(*rand.Rand) float64 { return seconds }
}

func exponentially(mean float64) func(*rand.Rand) float64 {
	return func(r *rand.Rand) float64 { return mean * r.ExpFloat64() }
}

// times draws many, as a histogram that is finer than any that is measured.
func times(f func(*rand.Rand) float64, r *rand.Rand, n int) Histogram {
	all := make([]float64, n)
	for i := range all {
		all[i] = f(r)
	}
	return FromTimes(all)
}

// run measures a world: windows of its workload, and of its class alone.
func (w world) run(t *testing.T, name string, seed uint64) (Workload, Class) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 9))
	load := Workload{Name: "shop", Engine: "postgresql", Clients: w.clients}
	class := Class{Name: name}
	for i := range 6 {
		k := kind{name: "commit", share: 1, own: w.own, flushes: 1, reads: w.reads}
		if w.silent {
			k.flushes = 0
		}
		f := flow{clients: w.clients, think: w.think, kinds: []kind{k}}
		if w.clients == 0 {
			f.rate = 1 / w.think
		}
		f.storage.flush = []visit{{newSampler(times(w.sync, r, 4000)), 1, 1}}
		if w.read != nil {
			f.storage.read = newSampler(times(w.read, r, 4000))
		}
		out := f.simulate(1500, seed+uint64(i))
		n := float64(len(out.times[0]))
		spent := out.stored[0] * n
		leads := spent - out.others[0]*n
		phases := map[string]float64{"cpu": w.own.cpu * n, "runqueue": w.own.waits * n, "wait": max(out.others[0]+w.lock, 0) * n}
		if !w.silent {
			phases["sync"] = leads
		}
		if w.reads > 0 {
			reading := w.reads * f.storage.read.h.Mean() * n
			phases["read"], phases["sync"] = reading, max(phases["sync"]-reading, 0)
		}
		response := make([]float64, len(out.times[0]))
		for i, v := range out.times[0] {
			response[i] = v + w.lock
		}
		load.Windows = append(load.Windows, Window{out.seconds, []Statement{{"commit", FromTimes(response), phases}}})
		l := Load{Seconds: out.seconds, Operations: map[string]Operation{"sync": {Times: times(w.sync, r, max(int(out.flushes), 300))}}}
		if w.read != nil {
			l.Operations["read"] = Operation{Times: times(w.read, r, 1000)}
		}
		class.Windows = append(class.Windows, l)
	}
	return load, class
}

func predicted(t *testing.T, in *Input) *Prediction {
	t.Helper()
	in.Version = Version
	p, err := Predict(in)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// What is made of a known world on a slow and on a fast class is predicted from each for the other, whether sessions
// are one or many, and whether they wait for each other's flushes.
func TestPredictsKnownWorlds(t *testing.T) {
	self := own{0.0003, 0.0001, 0.1}
	for name, c := range map[string]struct {
		clients  int
		think    float64
		from, to func(*rand.Rand) float64
	}{
		"one session, constant":           {1, 0.005, constantly(0.001), constantly(0.004)},
		"one session, back":               {1, 0.005, constantly(0.004), constantly(0.001)},
		"one session, exponential":        {1, 0.005, constantly(0.002), exponentially(0.003)},
		"many sessions, group commit":     {8, 0.004, constantly(0.001), exponentially(0.004)},
		"many sessions, back":             {8, 0.004, exponentially(0.004), constantly(0.001)},
		"an open loop, 200 a second":      {0, 0.005, constantly(0.001), constantly(0.006)},
		"an open loop, 200 a second back": {0, 0.005, constantly(0.006), constantly(0.001)},
	} {
		t.Run(name, func(t *testing.T) {
			here := world{clients: c.clients, think: c.think, own: self, sync: c.from}
			there := here
			there.sync = c.to
			load, from := here.run(t, "here", 1)
			truth, to := there.run(t, "there", 2)
			p := predicted(t, &Input{Workload: load, From: from, To: to})
			if p.Refusal != nil {
				t.Fatal(p.Refusal)
			}
			all, _ := totals(truth.Windows)
			for q, v := range map[float64]*Value{0.5: p.Statements[0].Median, 0.99: p.Statements[0].P99} {
				want := all[0].response.Quantile(q)
				bound := map[float64]float64{0.5: 0.1, 0.99: 0.25}[q]
				if off := v.Expected/want - 1; math.Abs(off) > bound || v.Low > want || v.High < want {
					t.Errorf("quantile %v: %s expected (%s to %s), %s made: off by %.0f %%", q, ms(v.Expected), ms(v.Low), ms(v.High), ms(want), 100*off)
				}
				if v.Low >= v.Expected || v.High <= v.Expected || v.Now <= 0 {
					t.Errorf("quantile %v: %+v", q, v)
				}
			}
		})
	}
}

// The same input gives the same prediction, to the last digit.
func TestIsDeterministic(t *testing.T) {
	w := world{clients: 4, think: 0.002, own: own{0.0003, 0.0002, 0.2}, sync: exponentially(0.002)}
	load, from := w.run(t, "here", 1)
	w.sync = exponentially(0.005)
	_, to := w.run(t, "there", 2)
	in := &Input{Workload: load, From: from, To: to}
	a, b := text(t, predicted(t, in)), text(t, predicted(t, in))
	if a != b || !strings.Contains(a, "median") {
		t.Errorf("%s\n%s", a, b)
	}
}

func text(t *testing.T, p *Prediction) string {
	t.Helper()
	var b strings.Builder
	if err := p.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// Where it cannot know there is no number, but a reason, and what to do.
func TestRefuses(t *testing.T) {
	usual := world{clients: 1, think: 0.005, own: own{0.0003, 0.0001, 0.1}, sync: constantly(0.002)}
	reading := usual
	reading.reads, reading.read = 1, constantly(0.003)
	silent, locked, busy := usual, usual, usual
	silent.silent, locked.lock = true, 0.004
	busy.own = own{0.0003, 0.006, 1}
	for name, c := range map[string]struct {
		world  world
		change func(*Input)
		want   Reason
	}{
		"it does not wait":           {silent, func(*Input) {}, NotWaiting},
		"it reads":                   {reading, func(*Input) {}, Caches},
		"reads of the class unknown": {reading, func(in *Input) { in.Workload.SameCache = true; without(in.To, "read") }, Unmeasured},
		"locks":                      {locked, func(*Input) {}, Waits},
		"the CPU":                    {busy, func(*Input) {}, Saturation},
		"all CPUs":                   {usual, func(in *Input) { in.Workload.Cores = 0.02 }, Saturation},
		"sessions would not do":      {usual, func(in *Input) { in.Workload.Clients, in.Workload.Sessions = 0, 1; slow(in.To, 4) }, Saturation},
		"nothing of the class":       {usual, func(in *Input) { in.To.Windows = nil }, Unmeasured},
		"nothing of its own class":   {usual, func(in *Input) { in.From.Windows = nil }, Unmeasured},
		"few windows of its device": {usual, func(in *Input) {
			renamed(in.From, "sync", "flush")
			renamed(in.To, "sync", "flush")
			in.From.Windows = in.From.Windows[:2]
		}, Unmeasured},
		"the class idle":               {usual, func(in *Input) { rare(in.To, 50) }, Unlike},
		"the class busier":             {usual, func(in *Input) { rare(in.To, 0.05) }, Unlike},
		"other sizes":                  {usual, func(in *Input) { sized(in.From, 8192); sized(in.To, 1<<20) }, Unlike},
		"measured otherwise":           {usual, func(in *Input) { renamed(in.To, "sync", "flush") }, Unmeasured},
		"its class measured otherwise": {usual, func(in *Input) { slow(in.From, 20) }, Unexplained},
		"few windows":                  {usual, func(in *Input) { in.Workload.Windows = in.Workload.Windows[:2] }, Unmeasured},
		"another engine":               {usual, func(in *Input) { in.Workload.Engine = "redis" }, Engine},
		"no statement":                 {usual, func(in *Input) { in.Workload.Windows = make([]Window, 0) }, Unmeasured},
	} {
		t.Run(name, func(t *testing.T) {
			load, from := c.world.run(t, "here", 1)
			there := c.world
			there.sync = constantly(0.006)
			_, to := there.run(t, "there", 2)
			in := &Input{Workload: load, From: from, To: to}
			c.change(in)
			p := predicted(t, in)
			if p.Refusal == nil || p.Refusal.Reason != c.want || len(p.Statements) > 0 || p.Refusal.Next == "" {
				t.Errorf("want %s, have %+v %v", c.want, p.Refusal, p.Statements)
			}
			if printed := text(t, p); !strings.Contains(printed, "no prediction") {
				t.Error(printed)
			}
		})
	}
}

// What a probe measured of calls on files is taken as it is, few windows or not.
func TestFewWindowsOfAProbe(t *testing.T) {
	w := world{clients: 1, think: 0.005, own: own{0.0003, 0.0001, 0.1}, sync: constantly(0.002)}
	load, from := w.run(t, "here", 1)
	_, to := w.run(t, "there", 2)
	from.Windows = from.Windows[:2]
	if p := predicted(t, &Input{Workload: load, From: from, To: to}); p.Refusal != nil {
		t.Error(p.Refusal)
	}
}

func each(c Class, change func(name string, o *Operation, l *Load)) {
	for i := range c.Windows {
		l := &c.Windows[i]
		for name, o := range l.Operations {
			change(name, &o, l)
			l.Operations[name] = o
		}
	}
}

func slow(c Class, by float64) {
	each(c, func(_ string, o *Operation, _ *Load) {
		o.Times.Bounds = slices.Clone(o.Times.Bounds)
		for i := range o.Times.Bounds {
			o.Times.Bounds[i] *= by
		}
	})
}

func sized(c Class, bytes float64) {
	each(c, func(_ string, o *Operation, _ *Load) { o.Bytes = bytes })
}

func rare(c Class, by float64) {
	for i := range c.Windows {
		c.Windows[i].Seconds *= by
	}
}

func without(c Class, name string) {
	for _, l := range c.Windows {
		delete(l.Operations, name)
	}
}

func renamed(c Class, from, to string) {
	for _, l := range c.Windows {
		l.Operations[to] = l.Operations[from]
		delete(l.Operations, from)
	}
}

// Phases without a CPU, or without what a statement waits for, still give numbers.
func TestFewPhases(t *testing.T) {
	for _, clients := range []int{0, 1, 4} {
		w := world{clients: clients, think: 0.008, own: own{0.0003, 0.0001, 0.1}, sync: exponentially(0.002)}
		load, from := w.run(t, "here", 1)
		w.sync = exponentially(0.004)
		_, to := w.run(t, "there", 2)
		for _, window := range load.Windows {
			sync := window.Statements[0].Phases["sync"]
			clear(window.Statements[0].Phases)
			window.Statements[0].Phases["sync"] = sync
		}
		p := predicted(t, &Input{Workload: load, From: from, To: to})
		if p.Refusal != nil {
			t.Fatal(clients, p.Refusal)
		}
		for _, v := range []*Value{p.Statements[0].Median, p.Statements[0].P99} {
			if !(v.Low > 0) || !(v.Expected > v.Now) || !(v.High > v.Expected) || math.IsInf(v.High, 1) {
				t.Errorf("%d clients: %+v", clients, v)
			}
		}
	}
}

// A file with nonsense in it is refused with the field's name.
func TestReadRefuses(t *testing.T) {
	w := world{clients: 1, think: 0.005, own: own{0.0003, 0.0001, 0.1}, sync: constantly(0.002)}
	load, class := w.run(t, "here", 1)
	for name, c := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"version":        {func(in *Input) { in.Version = 7 }, "version is 7"},
		"falling bounds": {func(in *Input) { in.To.Windows[1].Operations["sync"].Times.Bounds[1] = 0 }, "to.windows[1].operations.sync.times"},
		"counts":         {func(in *Input) { in.Workload.Windows[0].Statements[0].Response.Counts[0] = -1 }, "workload.windows[0].statements[0].response (commit)"},
		"phases":         {func(in *Input) { in.Workload.Windows[0].Statements[0].Phases["cpu"] = -1 }, "phases.cpu"},
		"seconds":        {func(in *Input) { in.From.Windows[0].Seconds = 0 }, "from.windows[0].seconds"},
		"no time":        {func(in *Input) { in.Workload.Windows[1].Seconds = 1e-300 }, "workload.windows[1].seconds is 1e-300; want 0.001"},
		"endless counts": {func(in *Input) { in.To.Windows[1].Operations["sync"].Times.Counts[1] = 1e300 }, "to.windows[1].operations.sync.times: counts[1] is 1e+300"},
		"endless phases": {func(in *Input) { in.Workload.Windows[0].Statements[0].Phases["cpu"] = 1e300 }, "phases.cpu (commit) is 1e+300"},
		"think":          {func(in *Input) { in.Workload.Think = "hard" }, "workload.think"},
	} {
		t.Run(name, func(t *testing.T) {
			written, err := json.Marshal(Input{Version: Version, Workload: load, From: class, To: class})
			if err != nil {
				t.Fatal(err)
			}
			in, err := Read(strings.NewReader(string(written)))
			if err != nil {
				t.Fatal(err)
			}
			c.change(in)
			if written, err = json.Marshal(in); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(strings.NewReader(string(written))); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	for _, text := range []string{"", "{", `{"version":1,"workloads":{}}`, `{"version":1} x`} {
		if _, err := Read(strings.NewReader(text)); err == nil && text != `{"version":1} x` {
			t.Errorf("%q is taken", text)
		}
	}
}

// Histograms keep what they count, whatever bounds they are added in.
func TestHistogram(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var a, b []float64
	for range 3000 {
		a, b = append(a, 0.001+0.001*r.ExpFloat64()), append(b, 0.02*r.Float64()+1e-6)
	}
	coarse := Histogram{Bounds: []float64{0.001, 0.002, 0.004, 0.008, 0.016, 0.032}, Counts: make([]float64, 7)}
	for _, v := range b {
		i, _ := slices.BinarySearch(coarse.Bounds, v)
		coarse.Counts[i]++
	}
	sum := FromTimes(a).Add(coarse)
	if err := sum.validate(); err != nil || math.Abs(sum.Count()-6000) > 1e-6 {
		t.Errorf("%v in all, %v", sum.Count(), err)
	}
	all := slices.Sorted(slices.Values(slices.Concat(a, b)))
	for _, q := range []float64{0.1, 0.5, 0.9} {
		if have, want := sum.Quantile(q), quantile(all, q); math.Abs(have/want-1) > 0.1 {
			t.Errorf("quantile %v is %v, want %v", q, have, want)
		}
	}
	s := newSampler(FromTimes(a))
	drawn := make([]float64, 20_000)
	for i := range drawn {
		drawn[i] = s.draw(r.Float64())
	}
	slices.Sort(drawn)
	slices.Sort(a)
	for _, q := range []float64{0.01, 0.5, 0.99} {
		if have, want := quantile(drawn, q), quantile(a, q); math.Abs(have/want-1) > 0.05 {
			t.Errorf("drawn: quantile %v is %v, want %v", q, have, want)
		}
	}
}
