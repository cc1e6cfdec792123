package collector

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/longhorn/types/pkg/generated/enginerpc"
)

// A simulated engine publishes windows of slightly over a second; polls come late by up to
// the slack between poll interval and window. Every window must be counted exactly once.
func TestEveryWindowIsCountedOnce(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	begin := time.Unix(1000, 0)
	var s sampled
	var wantReads, wantBytes, wantSeconds float64
	window := &enginerpc.Metrics{}
	nextSwap := begin
	const polls = 20000
	for i := range polls {
		now := begin.Add(time.Duration(i)*800*time.Millisecond + time.Duration(random.Int64N(int64(200*time.Millisecond))))
		for !nextSwap.After(now) {
			ops, latency := random.Uint64N(5000), 100_000+random.Uint64N(900_000)
			window = &enginerpc.Metrics{ReadIOPS: ops, ReadThroughput: ops * 8192, ReadLatency: latency}
			wantReads += float64(ops)
			wantBytes += float64(ops * 8192)
			wantSeconds += float64(ops) * float64(latency) / 1e9
			nextSwap = nextSwap.Add(time.Second + time.Duration(random.Int64N(int64(20*time.Millisecond))))
		}
		s.addWindow(window, now)
	}
	if s.reads != wantReads || s.readBytes != wantBytes || math.Abs(s.readSeconds-wantSeconds) > 1e-6*wantSeconds {
		t.Errorf("counted %v reads, %v bytes, %v s; the engine published %v, %v, %v",
			s.reads, s.readBytes, s.readSeconds, wantReads, wantBytes, wantSeconds)
	}
	if s.gap != 0 {
		t.Errorf("%s of gaps where no window was missed", s.gap)
	}
}

func TestLatePollsAreGaps(t *testing.T) {
	var s sampled
	at := time.Unix(1000, 0)
	for i, after := range []time.Duration{0, 800 * time.Millisecond, 5 * time.Second, 900 * time.Millisecond} {
		at = at.Add(after)
		s.addWindow(&enginerpc.Metrics{WriteIOPS: 10, WriteThroughput: 10, WriteLatency: uint64(i)}, at)
	}
	if s.gap != 4*time.Second {
		t.Errorf("gap is %s; one poll came 5 s after the last, of which a window covers 1 s", s.gap)
	}
	if s.writes != 40 {
		t.Errorf("%v writes from four windows of 10", s.writes)
	}
}

// The SPDK engine publishes rates, so each counts for the time it was valid.
func TestRatesAreIntegratedOverTime(t *testing.T) {
	var s sampled
	at := time.Unix(1000, 0)
	rate := &enginerpc.Metrics{ReadIOPS: 100, ReadThroughput: 100 * 4096, ReadLatency: 2_000_000}
	for _, after := range []time.Duration{0, time.Second, 2 * time.Second, 10 * time.Second} {
		at = at.Add(after)
		s.addRates(rate, at)
	}
	if s.reads != 600 || s.readBytes != 600*4096 || math.Abs(s.readSeconds-1.2) > 1e-9 {
		t.Errorf("got %v reads, %v bytes, %v s, want 600, %d, 1.2", s.reads, s.readBytes, s.readSeconds, 600*4096)
	}
	if s.gap != 7*time.Second {
		t.Errorf("gap is %s, want 7s", s.gap)
	}
}
