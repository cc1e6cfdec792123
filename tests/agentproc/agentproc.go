// Package agentproc runs the node agent as a process of its own, as tests and measurements
// of it from outside need it.
package agentproc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/testkit"
)

const stopTimeout = testkit.DefaultTimeout

// Agent is a running agent. The caller must stop it.
type Agent struct {
	address string
	cmd     *exec.Cmd
	ended   chan struct{}
}

// Start runs the program with flags and returns once its query collector measures.
func Start(ctx context.Context, program string, flags ...string) (*Agent, error) {
	address, err := freeport.Address()
	if err != nil {
		return nil, err
	}
	a := &Agent{address: address, ended: make(chan struct{})}
	a.cmd = exec.Command(program, append([]string{"--web.listen-address=" + a.address, "--log.level=error",
		// On a busy machine a scrape is late rather than without a collector.
		"--scrape.collector-timeout=" + testkit.DefaultTimeout.String()}, flags...)...)
	a.cmd.Stdout, a.cmd.Stderr = os.Stderr, os.Stderr
	if err := a.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		a.cmd.Wait()
		close(a.ended)
	}()
	if err := a.await(ctx); err != nil {
		return nil, errors.Join(err, a.Stop())
	}
	return a, nil
}

// await returns once the agent answers: it listens when its collectors are attached, and on a busy machine the kernel
// waits long for grace periods when probes come and go.
func (a *Agent) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, testkit.DefaultTimeout)
	defer cancel()
	for {
		m, err := a.Scrape(ctx)
		if err == nil {
			if m.Sum("plumbline_scrape_collector_success", "collector", "query") != 1 {
				return errors.New("the agent's query collector does not work; its log has the reason")
			}
			return nil
		}
		select {
		case <-a.ended:
			return errors.New("the agent ended at once; its log has the reason")
		case <-ctx.Done():
			return fmt.Errorf("the agent does not answer: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Metrics is one scrape.
type Metrics map[string]*dto.MetricFamily

// URL is where its metrics are.
func (a *Agent) URL() string { return "http://" + a.address + "/metrics" }

// PID is its process.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

// Scrape reads the agent's metrics.
func (a *Agent) Scrape(ctx context.Context) (Metrics, error) { return Scrape(ctx, a.URL()) }

// Scrape reads any exporter's metrics.
func Scrape(ctx context.Context, url string) (Metrics, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	// Protobuf has native histograms, too.
	r.Header.Set("Accept", string(expfmt.NewFormat(expfmt.TypeProtoDelim)))
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, answer.Status)
	}
	decoder := expfmt.NewDecoder(answer.Body, expfmt.ResponseFormat(answer.Header))
	metrics := Metrics{}
	for {
		f := &dto.MetricFamily{}
		if err := decoder.Decode(f); errors.Is(err, io.EOF) {
			return metrics, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", url, err)
		}
		metrics[f.GetName()] = f
	}
}

// Sum adds up a family's samples (of histograms, the counts) that have all of the labels,
// given as name and value by turns.
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
	family := m[name]
	if family == nil {
		return 0
	}
	for _, s := range family.Metric {
		if has(s, labels) {
			sum += s.GetGauge().GetValue() + s.GetCounter().GetValue() + s.GetUntyped().GetValue() +
				float64(s.GetHistogram().GetSampleCount())
		}
	}
	return sum
}

// Seconds adds up the sums of a family's histograms that have all of the labels.
func (m Metrics) Seconds(name string, labels ...string) float64 {
	sum := 0.0
	for _, s := range m[name].GetMetric() {
		if has(s, labels) {
			sum += s.GetHistogram().GetSampleSum()
		}
	}
	return sum
}

// Buckets adds up the native histograms of a family, all of one schema, that have all of the labels: counts by a
// bucket's index, whose upper bound is 2^(index/2^schema) seconds.
func (m Metrics) Buckets(name string, labels ...string) (schema int32, counts map[int32]float64) {
	counts = map[int32]float64{}
	for _, s := range m[name].GetMetric() {
		h := s.GetHistogram()
		if !has(s, labels) || h == nil {
			continue
		}
		schema = h.GetSchema()
		index, at, count := int32(0), 0, int64(0)
		for _, span := range h.GetPositiveSpan() {
			index += span.GetOffset()
			for range span.GetLength() {
				count += h.GetPositiveDelta()[at]
				counts[index] += float64(count)
				at, index = at+1, index+1
			}
		}
	}
	return schema, counts
}

func has(s *dto.Metric, labels []string) bool {
	values := map[string]string{}
	for _, l := range s.Label {
		values[l.GetName()] = l.GetValue()
	}
	for i := 0; i+1 < len(labels); i += 2 {
		if values[labels[i]] != labels[i+1] {
			return false
		}
	}
	return true
}

// Stop ends the agent, first by a signal to terminate, then by force.
func (a *Agent) Stop() error {
	a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.ended:
	case <-time.After(stopTimeout):
		a.cmd.Process.Kill()
		<-a.ended
		return fmt.Errorf("the agent did not end within %v and was killed", stopTimeout)
	}
	return nil
}
