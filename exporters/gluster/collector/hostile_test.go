package collector

import (
	"context"
	"encoding/xml"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

// script makes a program.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gluster")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// An answer without an end is given up once it is too long, not when the time is over.
func TestEndlessAnswer(t *testing.T) {
	for name, text := range map[string]string{"output": "exec yes '<?xml version=\"1.0\"?>'", "errors too": "yes >&2 & exec yes"} {
		t.Run(name, func(t *testing.T) {
			cli := CLI{Command: script(t, text), Timeout: time.Hour}
			if out, err := cli.call(t.Context(), "pool", "list"); err == nil || !strings.Contains(err.Error(), "longer than") || len(out) > 0 {
				t.Errorf("%d bytes, %v", len(out), err)
			}
		})
	}
}

// What the program has started ends with it, also if it holds the program's output open.
func TestProgramEndsWithItsChildren(t *testing.T) {
	noted := filepath.Join(t.TempDir(), "pid")
	cli := CLI{Command: script(t, "sleep 3600 & echo $! > "+noted+".new; mv "+noted+".new "+noted+"; wait"), Timeout: time.Hour}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := cli.call(ctx, "pool", "list")
		ended <- err
	}()
	var pid string
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		text, err := os.ReadFile(noted)
		pid = strings.TrimSpace(string(text))
		return err
	})
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("no error")
		}
	case <-time.After(testkit.DefaultTimeout):
		t.Fatal("the call does not return")
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
		if err == nil && !strings.Contains(string(stat), ") Z ") {
			return fmt.Errorf("its child still runs: %s", stat)
		}
		return nil
	})
}

// edited is a captured answer with something replaced.
func edited(t *testing.T, file, old, replacement string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "healthy", file))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), old) {
		t.Fatalf("%s has no %s", file, old)
	}
	return strings.Replace(string(text), old, replacement, 1)
}

// element is the first one of this name in a captured profile.
func element(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "healthy", profile))
	if err != nil {
		t.Fatal(err)
	}
	return regexp.MustCompile("<" + name + ">[^<]*</" + name + ">").FindString(string(text))
}

// Numbers, names and lists that cannot be are counted, and take only what they spoil.
func TestHostileAnswers(t *testing.T) {
	info := func(old, replacement string) string { return edited(t, "volume-info.xml", old, replacement) }
	hits := func(value string) string {
		return edited(t, profile, element(t, "hits"), "<hits>"+value+"</hits>")
	}
	const anyVolume, anyFop = "plumbline_gluster_volume_profiled{", `plumbline_gluster_fops_total{fop="`
	for name, test := range map[string]struct {
		file, answer, counted, absent string
	}{
		"an option as name":   {"volume-info.xml", info("<name>lab-gluster-r3<", "<name>--remote-host=elsewhere<"), commandInfo, anyVolume},
		"no name":             {"volume-info.xml", info("<name>lab-gluster-r3<", "<name><"), commandInfo, anyVolume},
		"a long name":         {"volume-info.xml", info("<name>lab-gluster-r3<", "<name>"+strings.Repeat("x", 1000)+"<"), commandInfo, anyVolume},
		"negative replicas":   {"volume-info.xml", info("<replicaCount>3<", "<replicaCount>-3<"), commandInfo, anyVolume},
		"a million replicas":  {"volume-info.xml", info("<replicaCount>3<", "<replicaCount>1000000<"), commandInfo, anyVolume},
		"many bricks":         {"volume-info.xml", info("<bricks>", "<bricks>"+strings.Repeat("<brick><name>a:/b</name></brick>", maxBricks)), commandInfo, anyVolume},
		"no UTF-8":            {"volume-info.xml", info("<name>lab-gluster-r3<", "<name>\xff<"), commandInfo, anyVolume},
		"hits are no number":  {profile, hits("NaN"), commandProfile, `fop="NONE"`},
		"hits are infinite":   {profile, hits("Inf"), commandProfile, `fop="NONE"`},
		"hits are negative":   {profile, hits("-1"), commandProfile, `fop="NONE"`},
		"latency of a year":   {profile, edited(t, profile, element(t, "avgLatency"), "<avgLatency>1e17</avgLatency>"), commandProfile, `fop="NONE"`},
		"many operations":     {profile, edited(t, profile, "<fopStats>", "<fopStats>"+strings.Repeat("<fop><name>READ</name></fop>", maxFops+1)), commandProfile, `fop="NONE"`},
		"an operation's name": {profile, edited(t, profile, "<fop>\n", "<fop><name>rm -rf</name></fop><fop>"), commandProfile, "rm -rf"},
		"a long line":         {heal, "Brick a:/b\n" + strings.Repeat("x", 1<<20), commandHeal, "plumbline_gluster_brick_heal_entries{"},
		"no count":            {heal, "Brick a:/b\nNumber of entries: NaN\n", commandHeal, "plumbline_gluster_brick_heal_entries{"},
		"cut in the middle":   {"volume-info.xml", info("</volume>", "<"), commandInfo, anyVolume},
	} {
		t.Run(name, func(t *testing.T) {
			_, r := polled(t, fake(t, filepath.Join("testdata", "healthy"), map[string]string{test.file: test.answer}), "all")
			text := exposition.Text(t, r)
			if !strings.Contains(text, `plumbline_gluster_errors_total{command="`+test.counted+`"} 1`+"\n") {
				t.Errorf("not counted:\n%s", text)
			}
			if strings.Contains(text, test.absent) {
				t.Errorf("%s is there:\n%s", test.absent, text)
			}
			if test.file == profile && strings.Count(text, anyFop) == 0 {
				t.Error("the other bricks' counts are gone, too")
			}
			if !strings.Contains(text, `dropped_series_total{collector="gluster"} 0`) {
				t.Errorf("series were dropped:\n%s", text)
			}
		})
	}
}

// A list that is too long is cut off, which is counted.
func TestManyVolumes(t *testing.T) {
	var list strings.Builder
	list.WriteString("<cliOutput><opRet>0</opRet><volInfo><volumes>")
	for i := range maxVolumes + 50 {
		fmt.Fprintf(&list, "<volume><name>v%d</name><statusStr>Started</statusStr><replicaCount>1</replicaCount></volume>", i)
	}
	list.WriteString("</volumes></volInfo></cliOutput>")
	_, r := polled(t, fake(t, filepath.Join("testdata", "healthy"), map[string]string{"volume-info.xml": list.String()}), "all")
	text := exposition.Text(t, r)
	if n := strings.Count(text, "\nplumbline_gluster_volume_profiled{"); n != maxVolumes || !strings.Contains(text, `errors_total{command="volume info"} 1`) {
		t.Errorf("%d volumes", n)
	}
}

// Without an entry for itself no machine takes another one's bricks for its own.
func TestNobodyIsLocal(t *testing.T) {
	answer := strings.ReplaceAll(edited(t, "volume-info.xml", "<hostUuid>", "<hostUuid>"), "d9caf34d-547b-45d3-82c6-cb678d9022d5</hostUuid>", "</hostUuid>")
	pool := "<cliOutput><opRet>0</opRet><peerStatus><peer><uuid>a</uuid><hostname>other</hostname></peer></peerStatus></cliOutput>"
	_, r := polled(t, fake(t, filepath.Join("testdata", "healthy"), map[string]string{"volume-info.xml": answer, "pool-list.xml": pool}), "local")
	if text := exposition.Text(t, r); strings.Contains(text, "plumbline_volume_replica_info{") {
		t.Errorf("a brick is local:\n%s", text)
	}
}

// FuzzAnswers reads any text as each of the answers: what is taken of it can be true.
func FuzzAnswers(f *testing.F) {
	for _, directory := range []string{"healthy", "degraded"} {
		files, err := filepath.Glob(filepath.Join("testdata", directory, "*"))
		if err != nil || len(files) == 0 {
			f.Fatal(files, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte("<cliOutput><volProfile><brick><cumulativeStats><totalRead>-Inf</totalRead></cumulativeStats></brick></volProfile></cliOutput>"))
	f.Add([]byte("Brick \xff\nNumber of entries: 18446744073709551615\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var info volumeInfo
		_ = xml.Unmarshal(text, &info)
		for _, v := range info.Volumes {
			if v.check() != nil {
				continue
			}
			known := volume{replicas: v.Replicas - v.Arbiters, set: max(v.Replicas, 1)}
			for range v.Bricks {
				known.bricks = append(known.bricks, &brick{})
			}
			if n, _ := known.healthy(); n < 0 || strings.HasPrefix(v.Name, "-") {
				t.Errorf("%q has %d healthy replicas", v.Name, n)
			}
		}
		var answer volumeProfile
		_ = xml.Unmarshal(text, &answer)
		for _, b := range answer.Bricks {
			if b.Total == nil || b.Total.check() != nil {
				continue
			}
			for _, op := range b.Total.Fops {
				if seconds := op.Hits * op.Mean / 1e9; math.IsNaN(seconds) || math.IsInf(seconds, 0) || seconds < 0 {
					t.Errorf("%v seconds", seconds)
				}
			}
		}
		if counts, err := healCount(text); err == nil {
			for brick, n := range counts {
				if n < 0 || math.IsNaN(n) {
					t.Errorf("%v entries of %q", n, brick)
				}
			}
		}
		_ = xml.Unmarshal(text, &volumeStatus{})
		_ = xml.Unmarshal(text, &poolList{})
	})
}
