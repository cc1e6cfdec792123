package collector

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

// changed is a fake program that does something first, in which $* is what it is called with.
func changed(t *testing.T, first string, edits map[string]string) CLI {
	t.Helper()
	cli := fake(t, filepath.Join("testdata", "healthy"), edits)
	text := strings.Replace(replay, "name=\n", first+"\nname=\n", 1)
	if err := os.WriteFile(cli.Command, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return cli
}

// While a volume's own commands hang, the states of the bricks are exposed, and so is the time of their query.
func TestBricksAreShownBeforeTheirVolumesAnswer(t *testing.T) {
	cli := changed(t, `case "$*" in *" profile "*) exec sleep 3600 ;; esac`, nil)
	cli.Timeout = time.Hour
	g, r := unpolled(t, cli, "all")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g.poll(ctx, time.Minute)
	}()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		text := exposition.Text(t, r)
		for _, want := range []string{"plumbline_gluster_brick_up{", "plumbline_gluster_last_poll_timestamp_seconds ", "plumbline_gluster_up 1\n"} {
			if !strings.Contains(text, "\n"+want) {
				return fmt.Errorf("no %s in\n%s", want, text)
			}
		}
		return nil
	})
	cancel()
	<-ended
}

// A poll whose time is over goes on the next time where it stopped, so that no volume is left out for good.
func TestVolumesAreQueriedInTurn(t *testing.T) {
	info, err := os.ReadFile(filepath.Join("testdata", "healthy", "volume-info.xml"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(info)
	volume := text[strings.Index(text, "<volume>"):strings.Index(text, "<count>")]
	second := strings.Replace(volume, "<name>lab-gluster-r3<", "<name>second<", 1)
	calls := filepath.Join(t.TempDir(), "calls")
	g, _ := unpolled(t, changed(t, `echo "$*" >> `+calls, map[string]string{"volume-info.xml": strings.Replace(text, volume, volume+second, 1)}), "all")
	for range 4 {
		g.poll(t.Context(), 0)
	}
	made, err := os.ReadFile(calls)
	if err != nil {
		t.Fatal(err)
	}
	for _, volume := range []string{"lab-gluster-r3", "second"} {
		for _, command := range []string{"profile " + volume, "heal " + volume} {
			if n := strings.Count(string(made), "volume "+command+" "); n != 1 {
				t.Errorf("%q was run %d times in 4 polls:\n%s", command, n, made)
			}
		}
	}
}

// Data that a poll had no time to query stays as it was, but not for ever.
func TestAnswersGetOld(t *testing.T) {
	g, r := polled(t, fake(t, filepath.Join("testdata", "healthy"), nil), "all")
	shown := func() bool {
		return strings.Contains(exposition.Text(t, r), "\nplumbline_gluster_brick_heal_entries{")
	}
	g.poll(t.Context(), 0) // queries the profile only
	if !shown() {
		t.Error("the heals are gone because the poll did not query them")
	}
	g.poll(t.Context(), 0) // and this one for the heals
	g.volumes[0].healedAt = time.Now().Add(-maxAge)
	g.poll(t.Context(), 0)
	if shown() {
		t.Error("heals that are too old are shown")
	}
}

// A brick that is down, or new, takes over nothing; one that may run does.
func TestInherit(t *testing.T) {
	yes, no, now := true, false, time.Now()
	entries := 4.0
	known := func(name string, up *bool) *brick { return &brick{name: name, up: up, total: &stats{}, heal: &entries} }
	old := &volume{profiled: true, profiledAt: now, healedAt: now, bricks: []*brick{known("a", &yes), known("b", &yes), known("c", &yes)}}
	v := &volume{profiled: true, bricks: []*brick{{name: "a", up: &yes}, {name: "b", up: &no}, {name: "c"}, {name: "d", up: &yes}}}
	v.inherit(old, now)
	for i, want := range []bool{true, false, true, false} {
		if b := v.bricks[i]; (b.total != nil) != want || (b.heal != nil) != want {
			t.Errorf("brick %s has %v and %v, want some: %v", b.name, b.total, b.heal, want)
		}
	}
	if v.profiledAt != now || v.healedAt != now {
		t.Error("the time of its queries is forgotten")
	}
}

// Where polls do not come any more, what they found is not shown as if it were of now.
func TestNoPollForLong(t *testing.T) {
	g, r := polled(t, fake(t, filepath.Join("testdata", "healthy"), nil), "all")
	g.mu.Lock()
	g.polled = time.Now().Add(-time.Hour)
	g.mu.Unlock()
	text := exposition.Text(t, r)
	for _, want := range []string{"plumbline_gluster_up 0", `plumbline_scrape_collector_success{collector="gluster"} 0`} {
		if !strings.Contains(text, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if strings.Contains(text, "plumbline_gluster_brick_up{") {
		t.Errorf("bricks of an hour ago are shown:\n%s", text)
	}
}

// A command that finds glusterd's lock held is tried once more, and only once.
func TestLockIsHeld(t *testing.T) {
	for name, refusal := range map[string]string{
		"in words": "echo 'Launching heal operation has been unsuccessful:'; echo 'Another transaction is in progress for v. Please try again after some time.'; exit 1",
		"in XML":   "echo '" + refused + "'; exit 1",
	} {
		t.Run(name, func(t *testing.T) {
			calls := filepath.Join(t.TempDir(), "calls")
			query := func(refusals int, pause time.Duration) error {
				t.Helper()
				if err := os.WriteFile(calls, nil, 0o600); err != nil {
					t.Fatal(err)
				}
				cli := CLI{Timeout: time.Minute, Pause: pause, Command: script(t, fmt.Sprintf(
					`echo >> %s; if [ $(wc -l < %s) -le %d ]; then %s; fi; echo '<?xml version="1.0"?><cliOutput><opRet>0</opRet></cliOutput>'`,
					calls, calls, refusals, refusal))}
				return cli.query(t.Context(), &poolList{}, "pool", "list")
			}
			if err := query(1, time.Millisecond); err != nil {
				t.Errorf("held once: %v", err)
			}
			if err := query(1, 0); err == nil {
				t.Error("tried again without a pause")
			}
			if err := query(2, time.Millisecond); err == nil {
				t.Error("held twice, and no error")
			}
		})
	}
	cli := CLI{Timeout: time.Minute, Command: script(t, "echo Locking failed on n2. >&2; exit 1")}
	if _, err := cli.call(t.Context(), "volume", "heal"); !errors.Is(err, errLocked) {
		t.Errorf("error %v does not report that a lock is held", err)
	}
}
