package predict

import (
	"container/heap"
	"math"
	"math/rand/v2"
)

// flow is a load on a database, to be simulated: sessions whose statements take some time of their own, read, and wait
// for the log to be flushed. A flush is for all who wait at its begin; who comes later waits for its end, and then for
// one of its own (group commit).
type flow struct {
	// clients are sessions in a closed loop with think times of a mean; 0 are arrivals at a rate per second.
	clients  int
	think    float64
	constant bool
	rate     float64
	kinds    []kind
	storage  storage
}

// kind is one kind of statement.
type kind struct {
	name string
	// share is its part of all statements that are simulated.
	share float64
	own   own
	// reads is how many operations of reading it waits for, on average; flushes the part of them that wait for a flush.
	reads, flushes float64
	// longer is how many times as long as in the model it waits for the flushes of others, up to 1; 0 is 1.
	longer float64
	// waking is a time that each statement takes which had to wait for another's flush.
	waking float64
}

// own is the time of a statement that no storage has: on a CPU, with a part of all statements also waiting for one.
type own struct{ cpu, waits, part float64 }

// cpuSpread is the deviation of a CPU time's logarithm.
const cpuSpread = 0.35

func (o own) draw(r *rand.Rand) float64 {
	t := o.cpu * math.Exp(cpuSpread*r.NormFloat64()-cpuSpread*cpuSpread/2)
	if o.waits > 0 && r.Float64() < o.part {
		t += o.waits / o.part * r.ExpFloat64()
	}
	return t
}

func (o own) mean() float64 { return o.cpu + o.waits }

func (o own) scaled(by float64) own { return own{o.cpu * by, o.waits * by, o.part} }

// storage draws times of operations.
type storage struct {
	// flush are the operations of a flush, one after the other; read is one of reading, nil if none is known.
	flush []visit
	read  *sampler
}

// visit is a number of operations, each a drawn time that is scaled.
type visit struct {
	of    *sampler
	times int
	scale float64
}

func (s storage) flushed(r *rand.Rand) float64 {
	t := 0.0
	for _, v := range s.flush {
		for range v.times {
			t += v.scale * v.of.draw(r.Float64())
		}
	}
	return t
}

func (s storage) reads(r *rand.Rand, mean float64) float64 {
	n := int(mean)
	if r.Float64() < mean-float64(n) {
		n++
	}
	t := 0.0
	for range n {
		t += s.read.draw(r.Float64())
	}
	return t
}

// run is what a simulation gave.
type run struct {
	// times are response times by kind; stored the mean time in storage, waiting for flushes included, others that of
	// waiting for flushes under way and for those that another session made, as the model has it.
	times          [][]float64
	stored, others []float64
	// waited is the part of each kind's statements that waited for another's flush.
	waited []float64
	// flushes, and commits that wait for one, were counted, seconds passed, underWay statements were on average.
	flushes, commits, seconds, underWay float64
}

// event is a statement that has come as far as its flush, or to its end if it makes none.
type event struct {
	at, began, reading float64
	client, kind       int
	flushes            bool
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	last := old[len(old)-1]
	*e = old[:len(old)-1]
	return last
}

// simulation is a run under way.
type simulation struct {
	flow
	r        *rand.Rand
	coming   events
	next     float64 // when the next arrives in an open loop
	batch    []event // those whose flush is under way, until its end
	waiting  []event
	end      float64
	flushing float64 // how long the flush under way takes
	out      run
	skip     int
	sum      float64
}

// simulate runs a flow until n statements have ended, after a tenth as many that are not counted. The same seed gives
// the same run.
func (f flow) simulate(n int, seed uint64) run {
	s := &simulation{flow: f, r: rand.New(rand.NewPCG(seed, 1)), skip: n / 10}
	s.out = run{times: make([][]float64, len(f.kinds)), stored: make([]float64, len(f.kinds)), others: make([]float64, len(f.kinds)), waited: make([]float64, len(f.kinds))}
	for c := range f.clients {
		s.begin(s.pause(), c)
	}
	if f.clients == 0 {
		s.arrive()
	}
	began, done := 0.0, 0
	for now := 0.0; done < n+s.skip; {
		if len(s.batch) > 0 && (len(s.coming) == 0 || s.end <= s.coming[0].at) {
			now = s.end
			batch := s.batch
			s.batch = nil
			for i, e := range batch {
				s.finish(e, now, i == 0, done)
				done++
			}
			if len(s.waiting) > 0 {
				s.batch, s.waiting = s.waiting, nil
				s.flushFrom(now, done)
			}
		} else {
			e := heap.Pop(&s.coming).(event)
			now = e.at
			if s.clients == 0 {
				s.arrive()
			}
			switch {
			case !e.flushes:
				s.finish(e, now, false, done)
				done++
			case len(s.batch) == 0:
				s.batch = append(s.batch, e)
				s.flushFrom(now, done)
			default:
				s.waiting = append(s.waiting, e)
			}
		}
		if done < s.skip {
			began = now
		}
		s.out.seconds = now - began
	}
	for k, times := range s.out.times {
		s.out.stored[k] /= max(float64(len(times)), 1)
		s.out.others[k] /= max(float64(len(times)), 1)
		s.out.waited[k] /= max(float64(len(times)), 1)
	}
	s.out.underWay = s.sum / s.out.seconds
	return s.out
}

func (s *simulation) pause() float64 {
	if s.constant {
		return s.think
	}
	return s.think * s.r.ExpFloat64()
}

// begin has a client's next statement come.
func (s *simulation) begin(at float64, client int) {
	k, u := 0, s.r.Float64()
	for k < len(s.kinds)-1 && u >= s.kinds[k].share {
		u -= s.kinds[k].share
		k++
	}
	e := event{began: at, client: client, kind: k, flushes: s.r.Float64() < s.kinds[k].flushes}
	if s.kinds[k].reads > 0 {
		e.reading = s.storage.reads(s.r, s.kinds[k].reads)
	}
	e.at = at + s.kinds[k].own.draw(s.r) + e.reading
	heap.Push(&s.coming, e)
}

// arrive has the next statement of an open loop come.
func (s *simulation) arrive() {
	s.next += s.r.ExpFloat64() / s.rate
	s.begin(s.next, 0)
}

func (s *simulation) flushFrom(now float64, done int) {
	s.flushing = s.storage.flushed(s.r)
	s.end = now + s.flushing
	if done >= s.skip {
		s.out.flushes++
	}
}

// finish ends a statement; the one that leads flushed itself.
func (s *simulation) finish(e event, now float64, leads bool, done int) {
	if done >= s.skip {
		others, more := 0.0, 0.0
		if e.flushes {
			s.out.commits++
			others = now - e.at
			if leads {
				others -= s.flushing
			}
			if others < 1e-9 { // what is left of the subtraction
				others = 0
			}
			if k := s.kinds[e.kind]; others > 0 {
				if k.longer > 0 {
					more = (k.longer - 1) * others
				}
				more += k.waking
				s.out.waited[e.kind]++
			}
		}
		s.out.others[e.kind] += others
		s.out.times[e.kind] = append(s.out.times[e.kind], now-e.began+more)
		s.out.stored[e.kind] += now - e.at + e.reading + more
		s.sum += now - e.began + more
	}
	if s.clients > 0 {
		s.begin(now+s.pause(), e.client)
	}
}
