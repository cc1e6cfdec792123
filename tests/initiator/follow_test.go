package initiator

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/iscsipdu"
	"github.com/plumbline/plumbline/tests/rig"
)

// tap is on the way to a target, and has a session follow what goes by.
type tap struct {
	net.Listener
	mu      sync.Mutex
	session iscsipdu.Session
	events  []iscsipdu.Event
}

func startTap(t *testing.T, target string) *tap {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{Listener: l}
	done := make(chan struct{})
	go func() {
		defer close(done)
		here, err := l.Accept()
		if err != nil {
			return
		}
		defer here.Close()
		there, err := net.Dial("tcp", target)
		if err != nil {
			return
		}
		defer there.Close()
		var both sync.WaitGroup
		both.Go(func() { p.pass(there, here, p.session.Received) })
		both.Go(func() { p.pass(here, there, p.session.Sent) })
		both.Wait()
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
	return p
}

// pass has what is read followed before the other end has it, so that no answer comes before its command.
func (p *tap) pass(to, from net.Conn, follow func([]byte, func(iscsipdu.Event))) {
	defer to.Close()
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		p.mu.Lock()
		follow(b[:n], func(e iscsipdu.Event) { p.events = append(p.events, e) })
		p.mu.Unlock()
		if _, failed := to.Write(b[:n]); failed != nil || err != nil {
			_, _ = io.Copy(io.Discard, from) // what is left of it
			return
		}
	}
}

// What the agent's reference parser understands of real targets: each command begins and ends once, with what it was.
func TestFollowed(t *testing.T) {
	each(t, func(t *testing.T, p *rig.ISCSIProgram, _ string, direct *Session) {
		tap := startTap(t, p.Address)
		s, err := Login(tap.Addr().String(), p.Name, direct.agreed.digests)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Read(p.LUN, 0, 1); err != nil { // until the unit has reported its power-on
			t.Fatal(err)
		}
		tap.mu.Lock()
		before := len(tap.events)
		tap.mu.Unlock()
		want := map[iscsipdu.Event]int{}
		for i := range 30 {
			for op, c := range map[iscsipdu.Op]Command{
				iscsipdu.Read:  Read10(p.LUN, uint32(i), 100),
				iscsipdu.Write: Write10(p.LUN, uint32(i), random(17*BlockSize)),
				iscsipdu.Sync:  Sync10(p.LUN, 0, 0),
			} {
				if _, err := s.do(c); err != nil {
					t.Fatal(err)
				}
				o := iscsipdu.Operation{LUN: uint32(p.LUN), Bytes: uint32(c.Read + len(c.Write)), Op: op}
				want[iscsipdu.Event{Operation: o}]++
				want[iscsipdu.Event{Operation: o, Ends: true}]++
			}
		}
		if _, err := s.Read(p.LUN, blocks, 1); err == nil {
			t.Fatal("a read beyond the end")
		}
		o := iscsipdu.Operation{LUN: uint32(p.LUN), Bytes: BlockSize}
		want[iscsipdu.Event{Operation: o}]++
		want[iscsipdu.Event{Operation: o, Ends: true, Failed: true}]++
		if err := s.Logout(); err != nil {
			t.Fatal(err)
		}
		tap.mu.Lock()
		defer tap.mu.Unlock()
		for _, e := range tap.events[before:] {
			e.Tag = 0
			want[e]--
		}
		for e, n := range want {
			if n != 0 {
				t.Errorf("%d too few of %+v", n, e)
			}
		}
		seen := &tap.session
		if o := direct.agreed.digests; seen.Target != p.Name || !seen.Known || seen.HeaderDigest != o.HeaderDigest || seen.DataDigest != o.DataDigest ||
			seen.Resyncs != 0 || seen.Missed || seen.Unmatched != 0 || seen.Lost != 0 || seen.UnderWay() != 0 {
			t.Errorf("%+v", seen)
		}
	})
}

// Real targets' connections whose login was not seen: adopted at a header, and the digests found.
func TestAdopted(t *testing.T) {
	each(t, func(t *testing.T, p *rig.ISCSIProgram, _ string, direct *Session) {
		tap := startTap(t, p.Address)
		s, err := Login(tap.Addr().String(), p.Name, direct.agreed.digests)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		rounds := func(n int) {
			for i := range n {
				if err := s.Write(p.LUN, uint32(i), random(17*BlockSize)); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Read(p.LUN, uint32(i), 17); err != nil {
					t.Fatal(err)
				}
			}
		}
		tap.mu.Lock()
		tap.session = iscsipdu.Session{}
		tap.mu.Unlock()
		rounds(40)
		tap.mu.Lock()
		resyncs := tap.session.Resyncs
		tap.events = nil
		tap.mu.Unlock()
		rounds(20)
		if err := s.Logout(); err != nil {
			t.Fatal(err)
		}
		tap.mu.Lock()
		defer tap.mu.Unlock()
		seen := &tap.session
		if o := direct.agreed.digests; seen.Known || seen.HeaderDigest != o.HeaderDigest || seen.DataDigest != o.DataDigest ||
			seen.Resyncs != resyncs || len(tap.events) != 2*2*20 {
			t.Errorf("%d events, %d resyncs before: %+v", len(tap.events), resyncs, seen)
		}
	})
}
