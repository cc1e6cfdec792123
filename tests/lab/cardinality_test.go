package lab

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/pause"
	"github.com/plumbline/plumbline/tests/promapi"
	"github.com/plumbline/plumbline/tests/shape"
	"github.com/plumbline/plumbline/tests/testkit"
)

// budget is how many series one more may cost, exported ones and those that the rules record of them; docs/install/stores.md
// has the same numbers. More makes every user's Prometheus larger: raise them only with a reason.
var budget = map[string]cost{
	"a Longhorn volume of three replicas": {204, 126}, // 8 of them are its processes' CPU time and waits for a CPU
	"one more replica of it":              {45, 23},   // 2 of the recorded ones are of its disk's users
	"a database server":                   {240, 105}, // 121 of them are its queries
	"a node, without node_exporter's":     {376, 8},   // 12 of them count what is not understood, by kind and reason
	"a block device":                      {38, 24},   // in the mean; some only for used, stalled or replicas' disks; up to 20 are its users'
}

type cost struct{ exported, recorded int }

// What one more volume, replica, server and node costs Prometheus is within the budget.
func TestCardinality(t *testing.T) {
	running(t)
	server, err := promapi.At(prometheus)
	if err != nil {
		t.Fatal(err)
	}
	recorded := func(matchers string) int {
		n, err := server.Number(t.Context(), fmt.Sprintf(`count({__name__=~".+:.+", %s}) or vector(0)`, matchers))
		if err != nil {
			t.Fatal(err)
		}
		return int(n)
	}
	seen := map[string]cost{}
	check := func() error {
		three, err := read(t, "longhorn-r3")
		if err != nil {
			return err
		}
		one, err := read(t, "longhorn-r1")
		if err != nil {
			return err
		}
		ofServer, ofThree := three.OfServer()
		_, ofOne := one.OfServer()
		delete(three.Node, "node-exporter")
		ofDevices, ofNode := three.OfDevices()
		perDevice := float64(shape.Series(ofDevices)) / float64(max(1, shape.Values("device", ofDevices)))
		// A machine has as many devices as it has; what is of a job, of peers, of a backend, of a step of load or of everything
		// is not more with one more node.
		devices, err := server.Number(t.Context(), `count(count by (device) (device:block_total_seconds:rate5m{volume=""})) or vector(0)`)
		if err != nil {
			return err
		}
		if devices == 0 {
			return errors.New("no device is recorded so far")
		}
		// The most of each, before one is taken from the other: one class is later than the other at the start.
		for what, now := range map[string]cost{
			"a Longhorn volume of three replicas": {shape.Series(ofThree), recorded(fmt.Sprintf("volume=%q", volume("longhorn-r3")))},
			"a Longhorn volume of one":            {shape.Series(ofOne), recorded(fmt.Sprintf("volume=%q", volume("longhorn-r1")))},
			"a database server":                   {shape.Series(ofServer), recorded(`server=~".*longhorn-r3", volume=""`)},
			"a node, without node_exporter's":     {shape.Series(ofNode), recorded(`__name__!~"(budget|threshold|job|backend|peers|device|disk|load|size):.*", job!~"loadgen.*", volume="", server="", storageclass="", replica=""`)},
			"a block device":                      {int(math.Ceil(perDevice)), int(math.Ceil(float64(recorded(`__name__=~"(device|disk):.*", volume=""`)) / devices))},
		} {
			seen[what] = cost{max(seen[what].exported, now.exported), max(seen[what].recorded, now.recorded)}
		}
		of3, of1 := seen["a Longhorn volume of three replicas"], seen["a Longhorn volume of one"]
		seen["one more replica of it"] = cost{(of3.exported - of1.exported) / 2, (of3.recorded - of1.recorded) / 2}
		return nil
	}
	testkit.Eventually(t, defaultTimeout, func() error {
		if err := check(); err != nil {
			return err
		}
		for what, limit := range budget {
			least := limit.exported / 2
			if what == "a block device" {
				least = 1 // in the mean of all that the machine has, most of which may be idle
			}
			if got := seen[what]; got.exported < least || got.recorded < limit.recorded/2 {
				return fmt.Errorf("%s: only %+v so far, of a budget of %+v", what, got, limit)
			}
		}
		return nil
	})
	// What comes later, as the rules' windows fill, counts as well: the most of the next minutes. A check may miss a
	// scrape that a busy machine was late for; the last one must not.
	for end := time.Now().Add(90 * time.Second); time.Now().Before(end); {
		if err := pause.For(t.Context(), 5*time.Second); err != nil {
			t.Fatal(err)
		}
		_ = check()
	}
	testkit.Eventually(t, defaultTimeout, check)
	for what, limit := range budget {
		got := seen[what]
		t.Logf("%s: %d series exported (budget %d), %d recorded (budget %d)", what, got.exported, limit.exported, got.recorded, limit.recorded)
		if got.exported > limit.exported || got.recorded > limit.recorded {
			t.Errorf("%s costs %d series exported and %d recorded; the budget is %d and %d", what, got.exported, got.recorded, limit.exported, limit.recorded)
		}
	}
}

func read(t *testing.T, class string) (*shape.Shape, error) {
	ctx, cancel := context.WithTimeout(t.Context(), testkit.DefaultTimeout)
	defer cancel()
	return shape.Read(ctx, prometheus, class)
}
