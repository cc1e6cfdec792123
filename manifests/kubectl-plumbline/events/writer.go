package events

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/why"
)

// component is the writer of the events.
const component = "plumbline"

// mostMessage is the API's limit of an event's note, in bytes.
const mostMessage = 1024

// Values of the label reason of plumbline_events_lost_total.
const (
	lostLate = "late"
	lostName = "name"
	lostGone = "namespace"
	lostBad  = "refused"
)

// Writer writes the events that are due. Its metrics are
//
//	plumbline_events_written_total{reason}    counter: events that the API server has
//	plumbline_events_lost_total{reason}       counter: events that it will not have: late, older than an hour before it took
//	                                          them; name, the object's name is none of Kubernetes'; namespace, it is gone; refused, as what it is
//	plumbline_events_pending                  gauge: events that are due and that it does not have yet
//	plumbline_events_round_errors_total       counter: rounds that Prometheus or the API server did not let finish
type Writer struct {
	Source
	// Client is with the rights to create events, Base the API server's address.
	Client *http.Client
	Base   *url.URL
	// Instance is the writer, such as the pod's name.
	Instance string

	// done are the events that were written, and waiting those that were due and are not, by name, and when they
	// happened.
	done, waiting map[string]time.Time
	// reported is when an event of a span that continues was written, by object and reason.
	reported map[string]time.Time

	written, lost *prometheus.CounterVec
	pending       prometheus.Gauge
	failed        prometheus.Counter
}

// NewWriter returns a Writer for the API server of config.
func NewWriter(config *rest.Config, source Source, instance string, registry prometheus.Registerer) (*Writer, error) {
	client, base, err := kube.Client(config, 10*time.Second)
	if err != nil {
		return nil, err
	}
	w := &Writer{Source: source, Client: client, Base: base, Instance: instance,
		done: map[string]time.Time{}, waiting: map[string]time.Time{}, reported: map[string]time.Time{},
		written: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "plumbline_events_written_total",
			Help: "Kubernetes Events of verdicts that the API server has taken, by the event's reason."}, []string{"reason"}),
		lost: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "plumbline_events_lost_total",
			Help: "Kubernetes Events of verdicts that will not be written, by why: late, the API server took none for an hour; name, the claim or pod has no name that Kubernetes allows; namespace, its namespace is gone; refused, the API server does not take such an event."}, []string{"reason"}),
		pending: prometheus.NewGauge(prometheus.GaugeOpts{Name: "plumbline_events_pending",
			Help: "Kubernetes Events of verdicts that are due and that the API server has not taken yet."}),
		failed: prometheus.NewCounter(prometheus.CounterOpts{Name: "plumbline_events_round_errors_total",
			Help: "Rounds of writing Kubernetes Events that ended early, because Prometheus or the API server did not answer or refused; what is due is tried again in the next."})}
	for _, reason := range []string{lostLate, lostName, lostGone, lostBad} {
		w.lost.WithLabelValues(reason)
	}
	for _, k := range []kind{stalled, replica, slow, statements, locked, short} {
		w.written.WithLabelValues(k.begun)
		w.written.WithLabelValues(k.ended)
	}
	registry.MustRegister(w.written, w.lost, w.pending, w.failed)
	return w, nil
}

// Run makes rounds until ctx ends.
func (w *Writer) Run(ctx context.Context, every time.Duration) {
	turn := time.NewTicker(every)
	defer turn.Stop()
	for {
		if err := w.Round(ctx, time.Now()); err != nil && ctx.Err() == nil {
			w.Log.Error("events are not written; the next round tries again", "err", why.Line(err))
		}
		select {
		case <-ctx.Done():
			return
		case <-turn.C:
		}
	}
}

// Round writes the events that are due. What the API server does not take is tried again by the next round.
func (w *Writer) Round(ctx context.Context, now time.Time) (err error) {
	defer func() {
		w.pending.Set(float64(len(w.waiting)))
		if err != nil {
			w.failed.Inc()
		}
	}()
	due, err := w.Due(ctx, now)
	if err != nil {
		return err
	}
	w.forget(due, now)
	var problems []error
	words, left := mostWorded, mostAtOnce
	for _, e := range due {
		name := e.name()
		if _, ok := w.done[name]; ok || w.repeats(e) {
			continue
		}
		w.waiting[name] = e.At
		if left == 0 || len(problems) > 0 {
			continue // it is pending
		}
		left--
		if !e.allowed() {
			w.give(e, lostName)
			continue
		}
		e.Message = w.message(ctx, &e, now, &words)
		switch code, err := w.create(ctx, e); {
		case err != nil:
			problems = append(problems, err)
		case code == http.StatusCreated || code == http.StatusConflict:
			if code == http.StatusCreated {
				w.written.WithLabelValues(e.Reason).Inc()
			}
			w.settle(e)
		case code == http.StatusNotFound:
			w.give(e, lostGone)
		default:
			w.give(e, lostBad)
		}
	}
	return errors.Join(problems...)
}

// forget drops what is older than the lookback, and counts what was not written of it.
func (w *Writer) forget(due []Event, now time.Time) {
	there := map[string]bool{}
	for _, e := range due {
		there[e.name()] = true
	}
	for name := range w.waiting {
		if !there[name] {
			delete(w.waiting, name)
			w.lost.WithLabelValues(lostLate).Inc()
		}
	}
	for _, seen := range []map[string]time.Time{w.done, w.reported} {
		for name, at := range seen {
			if now.Sub(at) > 2*lookback {
				delete(seen, name)
			}
		}
	}
}

// repeats is true of a span's hourly event that comes sooner than an hour after the last one.
func (w *Writer) repeats(e Event) bool {
	at, ok := w.reported[e.key()]
	return ok && e.Warning && e.span.before && e.At.Sub(at) < lookback-quiet
}

// settle notes that an event is there.
func (w *Writer) settle(e Event) {
	w.done[e.name()] = e.At
	delete(w.waiting, e.name())
	if e.Warning {
		w.reported[e.key()] = e.At
	}
}

// give gives an event up.
func (w *Writer) give(e Event, reason string) {
	w.lost.WithLabelValues(reason).Inc()
	w.Log.Warn("an event is not written", "why", reason, "kind", e.Kind, "namespace", why.Clean(e.Namespace), "name", why.Clean(e.Name), "reason", e.Reason)
	w.settle(e)
}

func (e Event) key() string {
	return strings.Join([]string{e.Kind, e.Namespace, e.Name, e.Reason}, "\x00")
}

// name is the event's own: the same for every writer.
func (e Event) name() string {
	const most = 200 // of 253
	sum := sha256.Sum256([]byte(e.key() + "\x00" + e.UID + "\x00" + e.slot))
	return fmt.Sprintf("%s.%x", strings.TrimRight(e.Name[:min(len(e.Name), most)], "-."), sum[:8])
}

// allowed reports whether names, which come from Prometheus, are such as the API server has: they go into a path.
func (e Event) allowed() bool {
	return len(validation.IsDNS1123Label(e.Namespace)) == 0 && len(validation.IsDNS1123Subdomain(e.Name)) == 0 && len(e.UID) <= 64
}

// message words an event: a beginning as `kubectl plumbline why` does.
func (w *Writer) message(ctx context.Context, e *Event, now time.Time, words *int) string {
	if !e.Warning {
		return cut(e.plain(), fmt.Sprintf(": ended after %s.", e.took()))
	}
	text := e.plain()
	if *words > 0 {
		*words--
		at := e.At.Add(settled)
		if at.After(now) {
			at = now
		}
		subject := why.Subject{Namespace: e.Namespace, Claim: e.Name}
		if e.Kind == podKind {
			subject = why.Subject{Namespace: e.Namespace, Pod: e.Name}
		}
		f, err := why.Find(ctx, w.API, subject, at, 5*time.Minute)
		switch {
		case err != nil:
			w.Log.Warn("an event has no sentence of its own", "kind", e.Kind, "namespace", e.Namespace, "name", e.Name, "err", why.Line(err))
		default:
			if k, ok := kindOf(f.Verdict.Reason, f.Verdict.Layer, f.Verdict.Replica); ok && k == e.kind {
				text = f.Words()
			}
		}
	}
	if e.span.before {
		text += fmt.Sprintf(" (for %s so far)", e.took())
	}
	target := e.Name
	if e.Kind == podKind {
		target = "pod/" + e.Name
	}
	hint := fmt.Sprintf(". kubectl plumbline why %s -n %s", target, e.Namespace)
	return cut(text, hint)
}

// took is how long the span lasted, or has so far.
func (e *Event) took() string {
	if e.span.before {
		return "more than " + model.Duration(lookback).String()
	}
	if e.span.lasted() < step {
		return "less than " + model.Duration(step).String()
	}
	return model.Duration(e.span.lasted()).String()
}

// plain names the culprits.
func (e *Event) plain() string {
	const most = 4
	var all []string
	for _, c := range e.culprits {
		if c.user == "" && slices.ContainsFunc(e.culprits, func(n culprit) bool { return n.user != "" && n.replica == c.replica && n.layer == c.layer }) {
			continue // its neighbour's part has the same place
		}
		var parts []string
		if c.layer != "" && (c.layer != layers.Device || c.device == "") {
			parts = append(parts, layers.Of(c.layer).Words)
		}
		for _, p := range []struct{ what, name string }{{"replica ", c.replica}, {"device ", c.device}, {"on ", c.node}} {
			if p.name != "" {
				parts = append(parts, p.what+p.name)
			}
		}
		if c.user != "" {
			parts = append(parts, fmt.Sprintf("much of its time is %s (%s)", c.user, c.kind))
		}
		if len(parts) > 0 {
			all = append(all, strings.Join(parts, ", "))
		}
	}
	if len(all) > most {
		all = append(all[:most], fmt.Sprintf("%d more", len(all)-most))
	}
	if len(all) == 0 {
		return "reason " + string(e.verdict)
	}
	return strings.Join(all, "; ")
}

// cut bounds a message by its text, and removes what no terminal should get.
func cut(text, end string) string {
	text, end = why.Clean(text), why.Clean(end)
	if most := mostMessage - len(end); len(text) > most {
		for text = text[:most-len("…")]; !utf8.ValidString(text); {
			text = text[:len(text)-1]
		}
		text += "…"
	}
	return text + end
}

// create writes an event. It returns the API server's answer where that settles what becomes of the event, and else an
// error.
func (w *Writer) create(ctx context.Context, e Event) (code int, err error) {
	at := metav1.NewTime(e.At)
	const version = "v1"
	severity := corev1.EventTypeNormal
	if e.Warning {
		severity = corev1.EventTypeWarning
	}
	text, err := json.Marshal(corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: version, Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: e.Namespace, Name: e.name()},
		InvolvedObject: corev1.ObjectReference{APIVersion: version, Kind: e.Kind, Namespace: e.Namespace, Name: e.Name, UID: types.UID(e.UID)},
		Reason:         e.Reason, Message: e.Message, Type: severity, Count: 1, FirstTimestamp: at, LastTimestamp: at,
		Source: corev1.EventSource{Component: component}, ReportingController: component, ReportingInstance: w.Instance,
	})
	if err != nil {
		return 0, err
	}
	path := w.Base.JoinPath("api", version, "namespaces", e.Namespace, "events")
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, path.String(), bytes.NewReader(text))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := w.Client.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	var status metav1.Status
	_ = json.Unmarshal(body, &status)
	switch answer.StatusCode {
	case http.StatusCreated, http.StatusConflict, http.StatusNotFound, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return answer.StatusCode, nil
	case http.StatusForbidden:
		if apierrors.HasStatusCause(&apierrors.StatusError{ErrStatus: status}, corev1.NamespaceTerminatingCause) {
			return http.StatusNotFound, nil
		}
	}
	return 0, fmt.Errorf("POST %s: the API server answers %d: %s", path.Path, answer.StatusCode, status.Message)
}
