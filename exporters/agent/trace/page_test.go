package trace

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func slowStatement(t *testing.T, server string) Statement {
	s := newStream(t, Options{})
	s.request(0xa, 110, 120, 150, nil)
	s.wait(1, waitSync, 100, 151, 160, byRequest(0xa, 150))
	s.statement(1, 50, 200)
	c := s.chain()
	c.ServerName, c.CommandName = server, "commit"
	return c.Report(time.Unix(1000, 0))
}

// The page has a bar for each step, and shows what others wrote as text.
func TestPage(t *testing.T) {
	const hostile = `<script>alert("1")</script>&'`
	var out bytes.Buffer
	if err := WriteHTML(&out, []Statement{slowStatement(t, hostile)}, nil); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	if strings.Contains(text, "<script") || !strings.Contains(text, "&lt;script&gt;") {
		t.Errorf("a server's name is not escaped:\n%s", text)
	}
	for _, want := range []string{"write of 8192 bytes at 1048576 of 7:0", "commit, 150.0 µs", "margin-left: 33.333%; width: 40.000%", `class="exact"`} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	for _, never := range []string{"http:", "https:", "src=", "ZgotmplZ"} {
		if strings.Contains(text, never) {
			t.Errorf("the page has %q", never)
		}
	}
}

// The JSON has all steps, and layers that add up to the statement.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := WriteJSON(&out, []Statement{slowStatement(t, "s")}); err != nil {
		t.Fatal(err)
	}
	var got []Statement
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	var sum float64
	for _, s := range got[0].Layers {
		sum += s
	}
	if n := len(got[0].Steps); n != 5 || sum < got[0].Seconds*0.999999 || sum > got[0].Seconds*1.000001 {
		t.Errorf("%d steps, layers of %v s in %v s", n, sum, got[0].Seconds)
	}
	out.Reset()
	if err := WriteJSON(&out, nil); err != nil || strings.TrimSpace(out.String()) != "[]" {
		t.Errorf("without statements: %q, %v", out.String(), err)
	}
}

// How long the server was awake before a statement began is shown where it is known.
func TestWakeup(t *testing.T) {
	for middle, want := range map[uint64]float64{0: 0, 40: 1e-5, 50: 0, 60: 0} {
		s := newStream(t, Options{})
		s.request(0xa, 110, 120, 150, nil)
		s.wait(1, waitSync, 100, 151, 160, byRequest(0xa, 150))
		s.Add(Event{Kind: KindStatement, Owner: server, Pid: 1, Subtype: 7, Start: 50 * us, WokenOrIssued: middle * us, End: 200 * us})
		r := s.chain().Report(time.Unix(1000, 0))
		if math.Abs(r.WakeupSeconds-want) > 1e-12 || math.Abs(r.Seconds-150e-6) > 1e-12 {
			t.Errorf("woken at %d us, begun at 50: %v s before, for %v s", middle, r.WakeupSeconds, r.Seconds)
		}
		var out bytes.Buffer
		if err := WriteHTML(&out, []Statement{r}, nil); err != nil {
			t.Fatal(err)
		}
		if shown := strings.Contains(out.String(), "woke the server's task 10.0 µs before"); shown != (want > 0) {
			t.Errorf("woken at %d us: the page shows it: %v", middle, shown)
		}
	}
}

// A page without statements has a text instead.
func TestEmptyPage(t *testing.T) {
	var out bytes.Buffer
	if err := WriteHTML(&out, nil, nil); err != nil || !strings.Contains(out.String(), "None yet") {
		t.Errorf("%v:\n%s", err, out.String())
	}
}
