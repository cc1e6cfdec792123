package trace

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/plumbline/plumbline/rules/layers"
)

const (
	us     = 1000
	ms     = 1000 * us
	server = 3
	disk   = 7 << 20
	other  = 8<<20 | 16
	engine = 11
)

// stream makes a joiner's events; the times are in microseconds.
type stream struct {
	*Joiner
	t *testing.T
}

func newStream(t *testing.T, o Options) *stream { return &stream{NewJoiner(o), t} }

func (s *stream) wait(pid uint32, what uint8, from, woken, to uint64, change func(*Event)) {
	e := Event{Kind: KindWait, Owner: server, Pid: pid, Subtype: what, Start: from * us, WokenOrIssued: woken * us, End: to * us}
	change(&e)
	s.Add(e)
}

// by is what ended a wait.
func byRequest(address, end uint64) func(*Event) {
	return func(e *Event) { e.ReasonOrView, e.Request, e.RequestEndOrOnCpu = wokenByRequest, address, end*us }
}

func bySession(pid uint32) func(*Event) {
	return func(e *Event) { e.ReasonOrView, e.Waker, e.Flags = wokenBySignal, pid, flagWakerServer }
}

func byKernel(pid uint32) func(*Event) {
	return func(e *Event) { e.ReasonOrView, e.Waker, e.Flags = wokenByKernel, pid, flagWakerHelper }
}

func (s *stream) request(address, made, issued, end uint64, change func(*Event)) {
	e := Event{Kind: KindRequest, Owner: disk, Subtype: blockWrite, Request: address, Offset: 1 << 20, Size: 8192, CallOffset: noOffset,
		Start: made * us, WokenOrIssued: issued * us, End: end * us}
	if change != nil {
		change(&e)
	}
	s.Add(e)
}

func (s *stream) flush(address, issued, end uint64) {
	s.request(address, issued, issued, end, func(e *Event) { e.Subtype, e.Size = blockFlush, 0 })
}

// operation of 8192 bytes at 1 MiB, number 5 of its connection.
func (s *stream) operation(view uint8, from, to uint64, change func(*Event)) {
	e := Event{Kind: KindOperation, ReasonOrView: view, Subtype: opWrite, Owner: engine, Request: 5, Offset: 1 << 20, Size: 8192, Start: from * us, End: to * us}
	if change != nil {
		change(&e)
	}
	s.Add(e)
}

func (s *stream) statement(pid uint32, from, to uint64) {
	s.Add(Event{Kind: KindStatement, Owner: server, Pid: pid, Subtype: 7, Start: from * us, End: to * us})
}

// chain is the only one that comes of the events.
func (s *stream) chain() *Chain {
	s.t.Helper()
	chains := s.Advance(uint64(1e12))
	if len(chains) != 1 {
		s.t.Fatalf("%d chains, want 1", len(chains))
	}
	return chains[0]
}

// want fails unless the chain has this verdict, for these reasons, and these shares in microseconds.
func want(t *testing.T, c *Chain, v Verdict, reasons []Reason, shares map[string]uint64) {
	t.Helper()
	if c.Verdict() != v || !slices.Equal(c.Reasons, reasons) {
		t.Errorf("%s %v, want %s %v", c.Verdict(), c.Reasons, v, reasons)
	}
	var sum uint64
	got := map[string]uint64{}
	for l, ns := range c.Root.Shares() {
		if got[l] = ns / us; !layers.Of(l).Traced {
			t.Errorf("%s is no layer that the agent reports as measured", l)
		}
		sum += ns
	}
	if !maps.Equal(got, shares) {
		t.Errorf("shares %v, want %v", got, shares)
	}
	if sum != c.Duration() {
		t.Errorf("shares add up to %d of %d ns", sum, c.Duration())
	}
}

// A commit that writes its log and has the device flushed.
func TestCommit(t *testing.T) {
	s := newStream(t, Options{})
	s.request(0xa, 110, 120, 150, nil)
	s.wait(1, waitSync, 100, 151, 160, byRequest(0xa, 150))
	s.flush(0xf, 175, 190)
	s.request(0xb, 170, 0, 191, func(e *Event) { e.Size = 0 })
	s.wait(1, waitSync, 165, 192, 195, byRequest(0xb, 191))
	s.Add(Event{Kind: KindStatement, Owner: server, Pid: 1, Start: 50 * us, End: 200 * us, Offset: 1<<64 - 7})
	c := s.chain()
	if id := c.Report(time.Time{}).QueryID; id != "-7" {
		t.Errorf("query %q", id)
	}
	want(t, c, Exact, nil, map[string]uint64{
		layers.CPU: 50 + 5 + 5, layers.Runqueue: 9 + 3, layers.FileSystem: 10 + 1 + 5 + 1, layers.Queue: 10 + 5 + 1, layers.Device: 30 + 15,
	})
}

// What the task waited for a CPU after its bytes came is the run queue's, not the server's.
func TestFirstWaitForCPU(t *testing.T) {
	for name, c := range map[string]struct{ had, runqueue uint64 }{"waited": {85, 35 + 9}, "had one": {50, 9}, "not known": {0, 9}} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, Options{})
			s.request(0xa, 110, 120, 150, nil)
			s.wait(1, waitSync, 100, 151, 160, byRequest(0xa, 150))
			s.Add(Event{Kind: KindStatement, Owner: server, Pid: 1, Start: 50 * us, RequestEndOrOnCpu: c.had * us, End: 200 * us})
			want(t, s.chain(), Exact, nil, map[string]uint64{
				layers.CPU: 50 + 40 + 9 - c.runqueue, layers.Runqueue: c.runqueue, layers.FileSystem: 10 + 1, layers.Queue: 10, layers.Device: 30,
			})
		})
	}
}

// Several commits wait for the one that flushes the log for all; each has that one's requests, as far as it waited for
// them.
func TestGroupCommit(t *testing.T) {
	s := newStream(t, Options{})
	s.request(0xa, 100, 100, 300, nil)
	s.wait(1, waitSync, 100, 300, 310, byRequest(0xa, 300))
	for pid := uint32(2); pid < 6; pid++ {
		s.wait(pid, 6, 200, 320, 330, bySession(1))
		s.statement(pid, 190, 340)
	}
	s.statement(1, 90, 325)
	chains := s.Advance(uint64(1e12))
	if len(chains) != 5 {
		t.Fatalf("%d chains, want 5", len(chains))
	}
	for _, c := range chains[:4] {
		// 300 to 310 the leader waited for a CPU, then it worked.
		want(t, c, Exact, nil, map[string]uint64{layers.CPU: 10 + 10, layers.Device: 100, layers.Runqueue: 10 + 10, layers.Wait: 10})
	}
	want(t, chains[4], Exact, nil, map[string]uint64{layers.CPU: 10 + 15, layers.Device: 200, layers.Runqueue: 10})
}

// A sync that waits for the journal has the journal's requests.
func TestJournal(t *testing.T) {
	s := newStream(t, Options{})
	s.request(0xa, 120, 130, 200, func(e *Event) { e.Pid = 77 })
	s.wait(77, waitHelper, 125, 200, 205, byRequest(0xa, 200))
	s.wait(1, waitSync, 100, 220, 230, byKernel(77))
	s.statement(1, 90, 240)
	want(t, s.chain(), Exact, nil, map[string]uint64{layers.CPU: 20, layers.Runqueue: 5 + 10, layers.FileSystem: 25 + 15, layers.Queue: 5, layers.Device: 70})
}

// What is not known is reported as unknown, never made up.
func TestIncomplete(t *testing.T) {
	unseen := func(*Event) {}
	for name, c := range map[string]struct {
		events  func(*stream)
		reasons []Reason
	}{
		"who woke it was not seen":     {func(s *stream) { s.wait(1, waitSync, 100, 150, 160, unseen) }, []Reason{WakerUnknown}},
		"the request was not reported": {func(s *stream) { s.wait(1, waitSync, 100, 150, 160, byRequest(0xa, 150)) }, []Reason{RequestUnseen}},
		"another request at its address": {func(s *stream) {
			s.request(0xa, 90, 95, 140, nil)
			s.wait(1, waitSync, 100, 150, 160, byRequest(0xa, 150))
		}, []Reason{RequestUnseen}},
		"a request that was over before": {func(s *stream) {
			s.request(0xa, 5000, 5000, 5100, nil)
			s.wait(1, waitSync, 7000, 7150, 7160, byRequest(0xa, 5100))
		}, []Reason{WakerUnknown}},
		"issued before the programs": {func(s *stream) {
			s.request(0xa, 90, 0, 150, nil)
			s.wait(1, waitSync, 100, 150, 160, byRequest(0xa, 150))
		}, []Reason{RequestUnsplit}},
		"no flush": {func(s *stream) {
			s.flush(0xf, 50, 99) // over before it was requested
			s.request(0xa, 110, 0, 150, func(e *Event) { e.Size = 0 })
			s.wait(1, waitSync, 100, 150, 160, byRequest(0xa, 150))
		}, []Reason{FlushUnseen}},
		"a helper that was not followed": {func(s *stream) {
			s.wait(1, waitSync, 100, 150, 160, func(e *Event) { e.ReasonOrView, e.Waker = wokenByKernel, 77 })
		}, []Reason{HelperUnknown}},
		"events lost": {func(s *stream) {
			s.request(0xa, 100, 100, 150, nil)
			s.wait(1, waitSync, 100, 150, 160, byRequest(0xa, 150))
			s.Lost(3, 120*us, 130*us)
		}, []Reason{LostEvents}},
		"waits forgotten": {func(s *stream) {
			for i := uint64(0); i <= maxWaits; i++ {
				s.wait(1, waitClient, 95+i, 95+i, 96+i, unseen)
			}
			s.request(0xa, 9700, 9700, 9750, nil)
			s.wait(1, waitSync, 9700, 9750, 9760, byRequest(0xa, 9750))
		}, []Reason{Forgotten, TooLarge}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, Options{})
			c.events(s)
			s.statement(1, 90, 10000)
			got := s.chain()
			if got.Verdict() != Incomplete || !slices.Equal(got.Reasons, c.reasons) {
				t.Errorf("%s %v, want incomplete %v", got.Verdict(), got.Reasons, c.reasons)
			}
		})
	}
}

// Losses before and after a statement are not its.
func TestLossesOfOthers(t *testing.T) {
	s := newStream(t, Options{})
	s.Lost(1, 0, 50*us)
	s.request(0xa, 100, 100, 150, nil)
	s.wait(1, waitSync, 100, 150, 160, byRequest(0xa, 150))
	s.statement(1, 90, 170)
	s.Lost(1, 400*ms, 500*ms)
	if c := s.chain(); c.Verdict() != Exact {
		t.Errorf("%s %v", c.Verdict(), c.Reasons)
	}
	if n := s.Counts().Lost; n != 2 {
		t.Errorf("%d events lost, want 2", n)
	}
}

// Tasks that wait for each other in turns end the search.
func TestTasksInCircles(t *testing.T) {
	s := newStream(t, Options{})
	for i := uint64(0); i < 20; i++ {
		s.wait(uint32(1+i%2), 6, 100, 200, 201, bySession(uint32(2-i%2)))
	}
	s.statement(1, 90, 300)
	if c := s.chain(); c.Verdict() != Incomplete || !slices.Contains(c.Reasons, TooLarge) {
		t.Errorf("%s %v, want too large", c.Verdict(), c.Reasons)
	}
}

// One in so many of those that waited is sampled, and the slowest are kept, sampled or not.
func TestSample(t *testing.T) {
	const seed = 7
	s := newStream(t, Options{Every: 10, Slowest: 3, Keep: 1000 * ms, Random: rand.New(rand.NewPCG(seed, seed))})
	drawn, again := 0, rand.New(rand.NewPCG(seed, seed))
	for range 100 {
		if again.IntN(10) == 0 {
			drawn++
		}
	}
	sampled := 0
	for i := uint64(0); i < 100; i++ {
		at := 1000 + i*1000
		length := 100 + i*7%100
		s.request(0xa, at, at, at+length, nil)
		s.wait(1, waitSync, at, at+length, at+length, byRequest(0xa, at+length))
		s.statement(1, at, at+length)
		s.statement(2, at, at+length+500) // it does not wait
		for _, c := range s.Advance((at+length)*us + settling) {
			if c.Sampled {
				sampled++
			}
		}
	}
	if n := s.Counts().Waited; n != 100 || sampled != drawn {
		t.Errorf("%d waited, %d sampled; want 100 and %d", n, sampled, drawn)
	}
	var slowest []uint64
	for _, c := range s.Slowest() {
		slowest = append(slowest, c.Duration()/us)
	}
	if !slices.Equal(slowest, []uint64{199, 198, 197}) {
		t.Errorf("slowest %v", slowest)
	}
	s.Advance(uint64(1e12))
	if n := len(s.Slowest()); n != 0 {
		t.Errorf("%d slow statements are kept for ever", n)
	}
}

// Of statements that come in turns each kind is in the sample as often as it is in all, also where the turns' length
// divides Every.
func TestSampleOfTurns(t *testing.T) {
	const each, every, turns = 2000, 10, 5
	s := newStream(t, Options{Every: every, Random: rand.New(rand.NewPCG(1, 2))})
	sampled := map[uint8]int{}
	for i := range uint64(each * turns) {
		at := 1000 + i*1000
		s.request(0xa, at, at, at+100, nil)
		s.wait(1, waitSync, at, at+100, at+100, byRequest(0xa, at+100))
		s.Add(Event{Kind: KindStatement, Owner: server, Pid: 1, Subtype: uint8(i % turns), Start: at * us, End: (at + 100) * us})
		for _, c := range s.Advance((at+100)*us + settling) {
			if c.Sampled {
				sampled[c.Command]++
			}
		}
	}
	// A binomial distribution's standard deviation is 13.4; five of those.
	for what := range uint8(turns) {
		if n := sampled[what]; n < each/every-67 || n > each/every+67 {
			t.Errorf("of %d statements of kind %d %d are in the sample, want %d", each, what, n, each/every)
		}
	}
}

// A sample is another one each time.
func TestSampleDiffers(t *testing.T) {
	draw := func() (all []int) {
		j := NewJoiner(Options{})
		for range 8 {
			all = append(all, j.options.Random.Int())
		}
		return all
	}
	if a, b := draw(), draw(); slices.Equal(a, b) {
		t.Errorf("%v twice", a)
	}
}

// A statement waits for events that come later, as long as they may.
func TestLateEvents(t *testing.T) {
	s := newStream(t, Options{})
	s.wait(1, waitSync, 100, 150, 160, byRequest(0xa, 150))
	s.statement(1, 90, 170)
	if n := len(s.Advance(170*us + settling - 1)); n != 0 {
		t.Fatalf("%d chains before their time", n)
	}
	s.request(0xa, 100, 100, 150, nil)
	if c := s.chain(); c.Verdict() != Exact {
		t.Errorf("%s %v", c.Verdict(), c.Reasons)
	}
}

// The sleeps of all tasks together are bounded, too, and tasks that lost some have that as their reason.
func TestBoundOfSleeps(t *testing.T) {
	s := newStream(t, Options{})
	for i := uint64(0); i < 3*maxAllWaits; i++ {
		s.wait(uint32(i%1000), waitSync, i, i+1, i+1, func(*Event) {})
	}
	kept := 0
	for _, task := range s.tasks {
		kept += len(task.events)
	}
	if kept != s.waits || kept > maxAllWaits {
		t.Errorf("%d sleeps are kept, counted as %d", kept, s.waits)
	}
	s.statement(1, 1, 3*maxAllWaits)
	if c := s.chain(); !slices.Contains(c.Reasons, Forgotten) {
		t.Errorf("%s %v, want forgotten events", c.Verdict(), c.Reasons)
	}
}

// A statement with very many steps has as many as there is room for, and is reported as incomplete; the layers add up
// all the same.
func TestManySpans(t *testing.T) {
	const sleeps, each = maxSleeps - 1, 30
	s := newStream(t, Options{})
	for i := range uint64(sleeps) {
		at := 1000 + i*each
		s.request(i, at, at+5, at+20, nil)
		s.wait(1, waitSync, at, at+20, at+22, byRequest(i, at+20))
	}
	s.statement(1, 1000, 1000+sleeps*each)
	c := s.chain()
	if !slices.Equal(c.Reasons, []Reason{TooLarge}) {
		t.Errorf("%s %v, want too large", c.Verdict(), c.Reasons)
	}
	if n := count(c.Root); n > maxSpans || n < maxSpans*9/10 {
		t.Errorf("%d steps, want up to %d", n, maxSpans)
	}
	var sum uint64
	for _, ns := range c.Root.Shares() {
		sum += ns
	}
	if sum != c.Duration() {
		t.Errorf("shares add up to %d of %d ns", sum, c.Duration())
	}
}

// count counts a step and those below it.
func count(s *Span) int {
	n := 1
	for _, b := range s.Below {
		n += count(b)
	}
	return n
}

// The slowest statements that are kept are fewer if they have very many steps; smaller ones that are faster do not come
// and go.
func TestSlowestOfManySpans(t *testing.T) {
	const sleeps, each, statements = 1000, 30, 2*maxKeptSpans/(4*1000) + 1
	s := newStream(t, Options{Every: 1 << 30, Slowest: 1000, Keep: uint64(1e18), Random: rand.New(rand.NewPCG(1, 2))})
	for n := range uint64(statements) {
		begin := 1000 + n*2*sleeps*each
		for i := range uint64(sleeps) {
			at := begin + i*each
			s.request(i, at, at+5, at+20, nil)
			s.wait(1, waitSync, at, at+20, at+22, byRequest(i, at+20))
		}
		// The later the slower.
		s.statement(1, begin, begin+sleeps*each+n)
		s.Advance((begin+2*sleeps*each)*us + settling)
	}
	spans := 0
	for _, c := range s.Slowest() {
		spans += count(c.Root)
	}
	if spans > maxKeptSpans || spans < maxKeptSpans*9/10 {
		t.Errorf("%d steps of the slowest %d statements, want up to %d", spans, len(s.Slowest()), maxKeptSpans)
	}
	if got := s.Slowest()[0].Duration() / us; got != sleeps*each+statements-1 {
		t.Errorf("the slowest took %d us", got)
	}
	if s.slow.admits(1) {
		t.Error("a fast one is followed in vain")
	}
	s.slow.expire(uint64(1e18))
	if len(s.Slowest()) != 0 || !s.slow.admits(1) {
		t.Error("nothing is kept after the slowest have expired")
	}
}

// Memory is bounded for any input.
func TestBounds(t *testing.T) {
	s := newStream(t, Options{Every: 1, Slowest: 5, Keep: 1})
	const n = maxRequests + 1000
	for i := uint64(0); i < n; i++ {
		s.request(i, i, i, i+1, nil)
		s.flush(i, i, i+1)
		s.operation(viewFrontend, i, i+1, nil)
		s.wait(uint32(i), waitSync, i, i+1, i+1, byRequest(i, i+1))
		s.statement(uint32(i), i, i+2)
		s.Lost(1, i*us, i*us)
	}
	if kept := len(s.requests.events); kept != maxRequests || len(s.byEnd) > maxRequests {
		t.Errorf("%d requests, %d by their ends", kept, len(s.byEnd))
	}
	if len(s.tasks) > maxTasks || len(s.pending) > maxPending || len(s.lost) > maxLosses || len(s.flushes.events) > maxFlushes || len(s.operations[viewFrontend].events) > maxOps {
		t.Errorf("%d tasks, %d statements, %d losses", len(s.tasks), len(s.pending), len(s.lost))
	}
	if overflowed := uint64(n - maxPending); s.Counts().Unfollowed != overflowed {
		t.Errorf("%d statements were not followed, want %d", s.Counts().Unfollowed, overflowed)
	}
}
