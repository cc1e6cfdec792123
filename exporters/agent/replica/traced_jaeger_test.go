//go:build e2e

package replica

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/tracer/tracertest"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// jaegerTrace is a trace as Jaeger's query service returns it.
type jaegerTrace struct {
	TraceID string `json:"traceID"`
	Spans   []struct {
		ID         string `json:"spanID"`
		Name       string `json:"operationName"`
		Duration   uint64 `json:"duration"` // microseconds
		References []struct {
			Type    string `json:"refType"`
			TraceID string `json:"traceID"`
			SpanID  string `json:"spanID"`
		} `json:"references"`
	} `json:"spans"`
	Processes map[string]struct {
		Service string `json:"serviceName"`
	} `json:"processes"`
}

// jaeger is a running Jaeger, which keeps traces in memory.
type jaeger struct {
	t          testing.TB
	query      string
	collecting string
}

func startJaeger(t testing.TB) *jaeger {
	t.Helper()
	program := testkit.Tool(t, "jaeger")
	var args []string
	addresses := map[string]string{}
	for _, server := range []string{"collector.otlp.http", "collector.otlp.grpc", "collector.grpc-server", "collector.http-server", "query.http-server", "query.grpc-server", "admin.http"} {
		address, err := freeport.Address()
		if err != nil {
			t.Fatal(err)
		}
		addresses[server] = address
		args = append(args, "--"+server+".host-port="+address)
	}
	j := &jaeger{t: t, query: "http://" + addresses["query.http-server"], collecting: "http://" + addresses["collector.otlp.http"]}
	p := rig.StartProcess(t, t.TempDir(), program, args...)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		select {
		case <-p.Done:
			t.Fatalf("jaeger: %s", p.Log)
		default:
		}
		for _, url := range []string{"http://" + addresses["admin.http"], j.query + "/api/services"} {
			answer, err := http.Get(url)
			if err != nil {
				return err
			}
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("%s: %s", url, answer.Status)
			}
		}
		return nil
	})
	return j
}

// trace returns the trace of a number; an error if Jaeger has none.
func (j *jaeger) trace(id string) (*jaegerTrace, error) {
	answer, err := http.Get(j.query + "/api/traces/" + id)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var got struct {
		Data []jaegerTrace `json:"data"`
	}
	if err := json.NewDecoder(answer.Body).Decode(&got); err != nil {
		return nil, err
	}
	if len(got.Data) != 1 {
		return nil, fmt.Errorf("jaeger has %d traces %s", len(got.Data), id)
	}
	return &got.Data[0], nil
}

// A real Jaeger has the trace of each commit, step by step, and each step at a replica of another node leads to that
// node's trace.
func TestTracesInJaeger(t *testing.T) {
	j := startJaeger(t)
	n := startTwoNodes(t, j.collecting)
	const commits = 20
	chains := n.commit(commits)
	tracertest.WantExact(t, chains, commits*9/10)
	followed, links := 0, 0
	for _, c := range chains {
		report := c.Report(time.Time{})
		var got *jaegerTrace
		testkit.Eventually(t, testkit.DefaultTimeout, func() (err error) {
			got, err = j.trace(c.ID())
			if err == nil && len(got.Spans) < len(report.Steps) {
				err = errors.New("the trace is not there in full")
			}
			return err
		})
		followed++
		wantService(t, got, tracertest.Name)
		if len(got.Spans) != len(report.Steps) {
			t.Errorf("trace %s has %d spans of %d steps", c.ID(), len(got.Spans), len(report.Steps))
		}
		there := map[string]bool{}
		for _, s := range got.Spans {
			for _, r := range s.References {
				if r.TraceID != c.ID() {
					there[r.TraceID] = true
				}
			}
		}
		for _, s := range tracertest.Spans(c.Root) {
			if s.Layer != layers.Network {
				continue
			}
			if !there[s.Elsewhere] {
				t.Errorf("trace %s has no link to %q of %q: %v", c.ID(), s.Elsewhere, s.What, there)
				continue
			}
			var request *jaegerTrace
			testkit.Eventually(t, testkit.DefaultTimeout, func() (err error) {
				request, err = j.trace(s.Elsewhere)
				return err
			})
			wantService(t, request, strings.TrimPrefix(s.What, "request to "))
			links++
		}
	}
	t.Logf("jaeger has %d of %d commits, and %d requests at the replicas that their links lead to", followed, len(chains), links)
	if links < commits {
		t.Errorf("%d links in %d commits", links, commits)
	}
}

// wantService fails unless all of a trace is of one service.
func wantService(t testing.TB, got *jaegerTrace, service string) {
	t.Helper()
	for _, p := range got.Processes {
		if p.Service != service {
			t.Errorf("trace %s is of service %q, want %q", got.TraceID, p.Service, service)
		}
	}
	if len(got.Processes) == 0 {
		t.Errorf("trace %s is of no service", got.TraceID)
	}
}
