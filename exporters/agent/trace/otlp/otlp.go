// Package otlp sends chains as traces to any endpoint for OTLP over HTTP: Tempo, Jaeger, an OpenTelemetry collector.
package otlp

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	pb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/plumbline/plumbline/exporters/agent/trace"
)

const (
	// maxWaiting bounds the traces that wait to be sent, maxWaitingSpans their spans: a chain has 5,000 at most, and
	// mostly ten.
	maxWaiting      = 512
	maxWaitingSpans = 50000
	// batch is how many are sent at once, batchSpans of how many spans, unless a single one has more. A span takes 250
	// bytes.
	batch      = 64
	batchSpans = 5000
	// timeout is how long one batch may take, tries again included.
	timeout = 10 * time.Second
	// logEvery is how often failures are logged.
	logEvery = time.Minute
)

// Exporter sends traces. Traces that cannot be sent are counted and dropped: it never blocks the caller.
type Exporter struct {
	client   otlptrace.Client
	node     string
	log      *slog.Logger
	waiting  chan trace.Statement
	stop     context.CancelFunc
	done     sync.WaitGroup
	reported time.Time

	// waitingSpans are the spans of the traces in waiting.
	waitingSpans atomic.Int64

	sent, failed, overflowed atomic.Uint64
}

// New returns an Exporter to an endpoint such as http://tempo:4318/v1/traces; Start starts it. Certificates and headers
// are taken from OpenTelemetry's own variables, OTEL_EXPORTER_OTLP_HEADERS and so on. node is the traces' host.name.
func New(endpoint, node string, log *slog.Logger) (*Exporter, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("%q is no address of an OTLP collector; one is http://HOST:4318/v1/traces", endpoint)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	return &Exporter{
		client: otlptracehttp.NewClient(otlptracehttp.WithEndpointURL(u.String()), otlptracehttp.WithTimeout(timeout),
			otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: time.Second, MaxInterval: timeout / 2, MaxElapsedTime: timeout})),
		node: node, log: log, waiting: make(chan trace.Statement, maxWaiting),
	}, nil
}

// Start begins to send, until Close.
func (e *Exporter) Start(ctx context.Context) error {
	if err := e.client.Start(ctx); err != nil {
		return fmt.Errorf("OTLP: %w", err)
	}
	ctx, e.stop = context.WithCancel(ctx)
	e.done.Go(func() { e.send(ctx) })
	return nil
}

// Close ends it; what waits is not sent.
func (e *Exporter) Close() error {
	if e.stop == nil {
		return nil
	}
	e.stop()
	e.done.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	return e.client.Stop(ctx)
}

// Export hands over a trace; it does not wait.
func (e *Exporter) Export(s trace.Statement) {
	n := int64(len(s.Steps))
	if e.waitingSpans.Add(n) <= maxWaitingSpans {
		select {
		case e.waiting <- s:
			return
		default:
		}
	}
	e.waitingSpans.Add(-n)
	e.overflowed.Add(1)
}

// Counts are the traces that were sent, those that could not be, and those for which there was no room.
func (e *Exporter) Counts() (sent, failed, overflowed uint64) {
	return e.sent.Load(), e.failed.Load(), e.overflowed.Load()
}

func (e *Exporter) send(ctx context.Context) {
	var all []trace.Statement
	for {
		// One that did not fit into the latest batch is the first of the next.
		if len(all) == 0 {
			select {
			case <-ctx.Done():
				return
			case s := <-e.waiting:
				all = append(all, e.taken(s))
			}
		}
		spans := len(all[0].Steps)
		for len(e.waiting) > 0 && len(all) < batch && spans <= batchSpans {
			s := e.taken(<-e.waiting)
			all = append(all, s)
			spans += len(s.Steps)
		}
		n := len(all)
		if n > 1 && spans > batchSpans {
			n--
		}
		e.upload(ctx, all[:n])
		all = append([]trace.Statement{}, all[n:]...)
	}
}

// taken is a trace that waits no more.
func (e *Exporter) taken(s trace.Statement) trace.Statement {
	e.waitingSpans.Add(-int64(len(s.Steps)))
	return s
}

// upload sends traces at once, or in halves if they are too large for the collector.
func (e *Exporter) upload(ctx context.Context, all []trace.Statement) {
	var spans []*pb.ResourceSpans
	for _, s := range all {
		spans = append(spans, e.spans(s))
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	err := e.client.UploadTraces(limited, spans)
	cancel()
	n := len(all)
	switch {
	case err == nil:
		e.sent.Add(uint64(n))
		return
	case n > 1 && refused(err):
		e.upload(ctx, all[:n/2])
		e.upload(ctx, all[n/2:])
		return
	}
	e.failed.Add(uint64(n))
	if now := time.Now(); now.Sub(e.reported) > logEvery && ctx.Err() == nil {
		e.reported = now
		e.log.Warn("traces could not be sent; is the OTLP collector there?", "traces", n, "err", err)
	}
}

// refused reports whether the collector refused a request as a whole, but may accept a part of it. Some answer 400 to a
// request that is too large. The client has the status in its error's text only.
func refused(err error) bool {
	for _, status := range []int{http.StatusRequestEntityTooLarge, http.StatusBadRequest} {
		if strings.Contains(err.Error(), fmt.Sprintf(": %d %s", status, http.StatusText(status))) {
			return true
		}
	}
	return false
}

// spans are a statement's trace. Each server is a service.
func (e *Exporter) spans(s trace.Statement) *pb.ResourceSpans {
	id, _ := hex.DecodeString(s.TraceID) // made by hex.EncodeToString
	var spans []*pb.Span
	var above [][]byte // span of each depth
	for i, step := range s.Steps {
		own := spanID(id, i)
		start := s.Start.Add(duration(step.Offset))
		span := &pb.Span{
			TraceId: id, SpanId: own, Name: step.Layer, Kind: pb.Span_SPAN_KIND_INTERNAL,
			StartTimeUnixNano: uint64(start.UnixNano()), EndTimeUnixNano: uint64(start.Add(duration(step.Seconds)).UnixNano()),
			Attributes: []*common.KeyValue{text("plumbline.layer", step.Layer), text("plumbline.step", step.What)},
		}
		if above = append(above[:step.Depth], own); step.Depth > 0 {
			span.ParentSpanId = above[step.Depth-1]
		} else {
			span.Name, span.Kind = s.Command, pb.Span_SPAN_KIND_SERVER
			if !s.Request {
				span.Attributes = append(span.Attributes, text("db.operation.name", s.Command), number("plumbline.wakeup_seconds", s.WakeupSeconds))
				if s.QueryID != "" {
					span.Attributes = append(span.Attributes, text("plumbline.queryid", s.QueryID))
				}
			}
			span.Attributes = append(span.Attributes, text("plumbline.verdict", string(s.Verdict)), text("plumbline.reasons", reasons(s)))
		}
		if there, _ := hex.DecodeString(step.ReplicaTraceID); len(there) > 0 {
			span.Links = []*pb.Span_Link{{TraceId: there, SpanId: spanID(there, 0)}}
		}
		spans = append(spans, span)
	}
	return &pb.ResourceSpans{
		Resource:   &resource.Resource{Attributes: []*common.KeyValue{text("service.name", s.Server), text("host.name", e.node)}},
		ScopeSpans: []*pb.ScopeSpans{{Scope: &common.InstrumentationScope{Name: "plumbline-agent"}, Spans: spans}},
	}
}

func reasons(s trace.Statement) string {
	var all []string
	for _, r := range s.Reasons {
		all = append(all, string(r))
	}
	return strings.Join(all, " ")
}

// duration rounds, as a float of seconds is a little off.
func duration(seconds float64) time.Duration { return time.Duration(seconds*1e9 + 0.5) }

func text(key, value string) *common.KeyValue {
	// Protobuf takes valid UTF-8 only, and one server's name must not hold up the others' traces.
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: strings.ToValidUTF8(value, "\uFFFD")}}}
}

func number(key string, value float64) *common.KeyValue {
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_DoubleValue{DoubleValue: value}}}
}

// spanID is the same for the same step of the same trace.
func spanID(trace []byte, step int) []byte {
	h := fnv.New64a()
	h.Write(trace)
	_ = binary.Write(h, binary.LittleEndian, uint64(step)) // a hash takes all
	return h.Sum(nil)
}
