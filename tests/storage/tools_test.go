//go:build e2e

package storage

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// cephTool queries every OSD through its admin socket.
type cephTool struct{ l *lab }

type counter struct {
	Count float64 `json:"avgcount"`
	Sum   float64 `json:"sum"`
}

// mark sets the OSDs' counters to nothing, which leaves what the manager counts by image alone.
func (c cephTool) mark(t *testing.T) {
	t.Helper()
	for _, socket := range c.sockets(t) {
		run(t, "ceph", "--admin-daemon", socket, "perf", "reset", "all")
	}
}

func (c cephTool) means(t *testing.T) map[string]float64 {
	t.Helper()
	total := map[string]counter{}
	for _, socket := range c.sockets(t) {
		var dump struct {
			OSD struct {
				Writes counter `json:"op_w_latency"`
			} `json:"osd"`
		}
		if err := json.Unmarshal(run(t, "ceph", "--admin-daemon", socket, "perf", "dump", "osd"), &dump); err != nil {
			t.Fatal(err)
		}
		class := filepath.Base(filepath.Dir(socket))
		sum := total[class]
		total[class] = counter{sum.Count + dump.OSD.Writes.Count, sum.Sum + dump.OSD.Writes.Sum}
	}
	means := map[string]float64{}
	for class, sum := range total {
		t.Logf("%s: %.0f writes in the OSDs", class, sum.Count)
		means[fmt.Sprintf("volume:engine_write_seconds:mean5m{volume=%q}", volume(class))] = sum.Sum / sum.Count
	}
	return means
}

func (c cephTool) sockets(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(c.l.dir, "classes", "*", "osd.*.asok"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no OSD has an admin socket (%v)", err)
	}
	return found
}

// glusterTool reads the volume's incremental profile; gluster_exporter reads the cumulative one.
type glusterTool struct{ l *lab }

func (g glusterTool) profile(t *testing.T) string {
	t.Helper()
	return string(run(t, "gluster", "--mode=script", "--log-file=/dev/null",
		"--glusterd-sock="+filepath.Join(g.l.dir, "classes", "gluster-r3", "glusterd.sock"), "volume", "profile", volume("gluster-r3"), "info", "incremental"))
}

// mark begins a new interval, which every reading does.
func (g glusterTool) mark(t *testing.T) { g.profile(t) }

// line is one operation of a brick: its share, mean, minimum, maximum, count and name.
var line = regexp.MustCompile(`^\s*[\d.]+\s+([\d.]+) ns\s+[\d.]+ ns\s+[\d.]+ ns\s+(\d+)\s+(WRITE|FSYNC)$`)

func (g glusterTool) means(t *testing.T) map[string]float64 {
	t.Helper()
	rules := map[string]string{"WRITE": "replica:write_service_seconds:mean5m", "FSYNC": "replica:sync_service_seconds:mean5m"}
	means := map[string]float64{}
	brick := ""
	for text := range strings.Lines(g.profile(t)) {
		text = strings.TrimRight(text, "\n")
		if name, ok := strings.CutPrefix(text, "Brick: "); ok {
			brick = name
		}
		if m := line.FindStringSubmatch(text); m != nil {
			mean, err := strconv.ParseFloat(m[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%s: %s of %s", brick, m[2], m[3])
			means[fmt.Sprintf(`%s{replica="%s"}`, rules[m[3]], brick)] = mean / 1e9
		}
	}
	if len(means) != 6 {
		t.Fatalf("the profile has %d kinds of operations of 3 bricks, want WRITE and FSYNC of each", len(means))
	}
	return means
}

func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()
	out, err := exec.Command(name, args...).Output()
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return out
}
