package lab

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/promapi"
	"github.com/plumbline/plumbline/tests/shape"
	"github.com/plumbline/plumbline/tests/testkit"
)

// budget is how many series one more may cost, of what exporters say and of what the rules record of it; rules/README.md
// has the same numbers. Who exceeds them makes every user's Prometheus larger: raise them with a reason.
var budget = map[string]struct{ said, recorded int }{
	"a Longhorn volume of three replicas": {200, 130},
	"one more replica of it":              {45, 20},
	"a database server":                   {130, 60},
	"a node, without node_exporter's":     {340, 40},
}

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
	seen := map[string]struct{ said, recorded int }{}
	// All that is said and recorded comes with the first minutes.
	testkit.Eventually(t, 6*time.Minute, func() error {
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
		volumeRecorded := func(class string) int { return recorded(fmt.Sprintf("volume=%q", volume(class))) }
		seen["a Longhorn volume of three replicas"] = struct{ said, recorded int }{shape.Series(ofThree), volumeRecorded("longhorn-r3")}
		seen["one more replica of it"] = struct{ said, recorded int }{(shape.Series(ofThree) - shape.Series(ofOne)) / 2, (volumeRecorded("longhorn-r3") - volumeRecorded("longhorn-r1")) / 2}
		seen["a database server"] = struct{ said, recorded int }{shape.Series(ofServer), recorded(`server=~".*longhorn-r3", volume=""`)}
		seen["a node, without node_exporter's"] = struct{ said, recorded int }{shape.Series(three.Node), recorded(`volume="", server="", storageclass="", replica=""`)}
		for what, limit := range budget {
			if got := seen[what]; got.said < limit.said/2 || got.recorded < limit.recorded/2 {
				return fmt.Errorf("%s: only %+v so far, of a budget of %+v", what, got, limit)
			}
		}
		return nil
	})
	for what, limit := range budget {
		got := seen[what]
		t.Logf("%s: %d series said (budget %d), %d recorded (budget %d)", what, got.said, limit.said, got.recorded, limit.recorded)
		if got.said > limit.said || got.recorded > limit.recorded {
			t.Errorf("%s costs %d series said and %d recorded; the budget is %d and %d", what, got.said, got.recorded, limit.said, limit.recorded)
		}
	}
}

func read(t *testing.T, class string) (*shape.Shape, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return shape.Read(ctx, prometheus, class)
}
