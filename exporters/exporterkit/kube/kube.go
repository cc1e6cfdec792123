// Package kube follows objects on a Kubernetes cluster for the exporters: it lists each kind once, follows its changes,
// and counts what goes wrong on the way. Of each object it keeps what is read of it, and it never has more than one
// whole object at a time.
package kube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/json"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// Metrics of the connection to the API server.
var (
	syncedDesc = prometheus.NewDesc("plumbline_kubernetes_synced",
		"Whether a kind of object was listed completely since the start: 1 yes, 0 no.", []string{"resource"}, nil)
	objectsDesc = prometheus.NewDesc("plumbline_kubernetes_objects",
		"Objects of a kind that are known and kept.", []string{"resource"}, nil)
	leftOutDesc = prometheus.NewDesc("plumbline_kubernetes_left_out_total",
		"Objects received that were not kept, as there are more of their kind than the bound allows.", []string{"resource"}, nil)
	rejectedDesc = prometheus.NewDesc("plumbline_kubernetes_rejected_total",
		"Objects received that could not be read; each is left out until it changes.", []string{"resource"}, nil)
	unknownDesc = prometheus.NewDesc("plumbline_kubernetes_unknown_values_total",
		"Objects received with a state that this version does not know.", []string{"resource"}, nil)
	errorsDesc = prometheus.NewDesc("plumbline_kubernetes_errors_total",
		"Lists and watches that failed: expired (410 Gone, listed again), forbidden, missing (no such resource), version (served in unknown versions only), other.",
		[]string{"resource", "reason"}, nil)
	requestsDesc = prometheus.NewDesc("plumbline_kubernetes_requests_total",
		"Requests sent to the API server.", nil, nil)
)

var reasons = []string{"expired", "forbidden", "missing", "version", "other"}

// maxObjects bounds the objects of a kind that are kept. Of twice what the largest clusters have, some hundred bytes
// each.
const maxObjects = 200_000

// Objects knows the objects of the kinds it follows.
type Objects struct {
	log      *slog.Logger
	requests *atomic.Uint64
	client   *http.Client
	base     *url.URL
	now      func() time.Time
	limit    int // of objects of a kind

	mu      sync.Mutex
	kinds   map[string]*kind // by name
	changed chan struct{}
}

// Kind describes the objects that are followed.
type Kind struct {
	Group, Resource string
	// Versions are those that are understood. The first one that the API server serves is followed.
	Versions []string
	// Name is what All and the metrics call the kind, if it is not its resource.
	Name string
	// Namespace is empty for objects without one and for all namespaces.
	Namespace string
	// Fields and Labels select the objects; all if they are empty.
	Fields, Labels string
	// Spread is set if the same names may be in several namespaces: the objects are then known by NAMESPACE/NAME.
	Spread bool
	// Optional is set if a cluster may lack the kind: its absence is no error. The kind is requested again now and
	// then.
	Optional bool
	// Dispensable is set if the kind can be done without: where it may not be listed, there are no such objects, which
	// is counted and is no failure; it is tried again now and then.
	Dispensable bool
	// Idle is set if nothing is followed before Select.
	Idle bool
}

// name is what the kind is called.
func (k Kind) name() string {
	if k.Name != "" {
		return k.Name
	}
	return k.Resource
}

// kind is one kind of object.
type kind struct {
	Kind
	decode   func([]byte) (decoded, error)
	keep     func(decoded) Object
	objects  map[string]entry // by name, or by namespace and name
	revision uint64           // grows with each change
	round    uint32           // of the list under way or the latest
	synced   bool
	rejected uint64
	unknown  uint64
	leftOut  uint64
	full     bool              // objects were left out since the latest list began
	errors   map[string]uint64 // by reason
	health   health
	reselect context.CancelFunc // ends what is followed by the former selection
	// texts are those that many objects have, each once.
	texts map[string]string

	// These are the follower's own.
	version string // empty until it is known
	at      string // the resource version that is followed from; empty before a list
	paged   bool   // the API server does not stream lists
}

// entry is an object, and the list that had it last.
type entry struct {
	Object
	round uint32
}

// Object is what is kept of an object.
type Object interface {
	// UnknownValue names a field whose value is not known to this version, and the value; else "".
	UnknownValue() string
}

// decoded is what is read of an object. It embeds Meta for its metadata.
type decoded interface {
	Object
	meta() *Meta
}

// Meta is what is read of every object's metadata.
type Meta struct {
	Name            string `json:"name"`
	Namespace       string `json:"namespace"`
	ResourceVersion string `json:"resourceVersion"`
}

func (m *Meta) meta() *Meta { return m }

// checkable objects return an error for values that are impossible or above their bounds. Such an object is rejected
// like one that cannot be read.
type checkable interface{ Check() error }

// sharing objects name their texts that many other objects have, too, such as a node's name: these are kept once.
type sharing interface{ Shared() []*string }

// Config returns how to reach the API server: by the kubeconfig file or, without one, by the pod's own service account.
func Config(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("no way to the Kubernetes API server: %w", err)
	}
	return config, nil
}

// Client returns a client of the API server that config names, and the server's address. A request may take as long as
// timeout; 0 is no limit.
func Client(config *rest.Config, timeout time.Duration) (*http.Client, *url.URL, error) {
	config = rest.CopyConfig(config)
	config.Timeout = timeout
	if config.UserAgent == "" {
		config.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, nil, err
	}
	client, err := rest.HTTPClientFor(config)
	return client, base, err
}

// New returns Objects that follow nothing yet.
func New(config *rest.Config, log *slog.Logger) (*Objects, error) {
	c := &Objects{log: log, requests: &atomic.Uint64{}, now: time.Now, limit: maxObjects, kinds: map[string]*kind{}, changed: make(chan struct{}, 1)}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, c.requests} })
	var err error
	c.client, c.base, err = Client(config, config.Timeout)
	return c, err
}

// Follow adds a kind before Run; T has the fields that are read. keep, if it is not nil, returns what is kept of an
// object, or nil for nothing.
func Follow[T any, P interface {
	*T
	decoded
}](c *Objects, description Kind, keep func(P) Object) {
	k := &kind{Kind: description, objects: map[string]entry{}, errors: map[string]uint64{}, texts: map[string]string{}}
	k.decode = func(text []byte) (decoded, error) {
		var t T
		err := json.UnmarshalCaseSensitivePreserveInts(text, &t)
		return P(&t), err
	}
	k.keep = func(o decoded) Object { return o }
	if keep != nil {
		k.keep = func(o decoded) Object { return keep(o.(P)) }
	}
	for _, reason := range reasons {
		k.errors[reason] = 0
	}
	c.kinds[description.name()] = k
}

// Forget takes a kind back, before Run.
func (c *Objects) Forget(name string) { delete(c.kinds, name) }

// key is what an object is known by.
func (k *kind) key(m *Meta) string {
	if k.Spread {
		return m.Namespace + "/" + m.Name
	}
	return m.Name
}

type counted struct {
	next     http.RoundTripper
	requests *atomic.Uint64
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.next.RoundTrip(r)
}

// Run follows the objects until ctx ends.
func (c *Objects) Run(ctx context.Context) error {
	for _, k := range c.kinds {
		c.note(func(now time.Time) { k.health.began = now })
		go c.follow(ctx, k)
	}
	return nil
}

// update takes an object as the API server has sent it, and returns its resource version.
func (c *Objects) update(k *kind, text []byte) string {
	o, err := k.decode(text)
	m := *o.meta()
	if err != nil {
		m = metaOf(text) // which is read even if the rest is not
	}
	if checked, ok := o.(checkable); ok && err == nil {
		err = checked.Check()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := k.key(&m)
	before, known := k.objects[key]
	if err != nil {
		k.rejected++
		c.drop(k, key)
		c.log.Error("object cannot be read", "resource", k.name(), "name", label.Value(m.Name), "err", label.Text(err.Error(), 512))
		return m.ResourceVersion
	}
	if unknown := o.UnknownValue(); unknown != "" {
		k.unknown++
		if !known || before.UnknownValue() != unknown {
			c.log.Warn("object has a value that is not known", "resource", k.name(), "name", label.Value(m.Name), "field", label.Value(unknown))
		}
	}
	o.meta().ResourceVersion = ""
	kept := k.keep(o)
	if kept == nil {
		c.drop(k, key)
		return m.ResourceVersion
	}
	if !known && len(k.objects) >= c.limit {
		k.leftOut++
		k.full = true
		return m.ResourceVersion
	}
	o.meta().Namespace = k.shared(m.Namespace)
	if s, ok := kept.(sharing); ok {
		for _, text := range s.Shared() {
			*text = k.shared(*text)
		}
	}
	if !k.Spread {
		key = o.meta().Name // one text for both
	}
	if known {
		delete(k.objects, key) // or the former text would be kept
	}
	k.objects[key] = entry{kept, k.round}
	k.revision++
	c.notify()
	return m.ResourceVersion
}

// maxTexts bounds the texts that are known to be kept already.
const maxTexts = 20_000

// shared returns the text as other objects have it.
func (k *kind) shared(text string) string {
	if known, ok := k.texts[text]; ok {
		return known
	}
	if len(k.texts) >= maxTexts {
		clear(k.texts)
	}
	text = strings.Clone(text)
	k.texts[text] = text
	return text
}

// metaOf reads an object's metadata alone.
func metaOf(text []byte) Meta {
	var o struct {
		Meta `json:"metadata"`
	}
	// What is no object has no name either, and no more is known of it.
	_ = json.UnmarshalCaseSensitivePreserveInts(text, &o)
	return o.Meta
}

// remove takes note that an object is gone, and returns the resource version of that.
func (c *Objects) remove(k *kind, text []byte) string {
	m := metaOf(text)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(k, k.key(&m))
	return m.ResourceVersion
}

// drop forgets an object; c.mu is held.
func (c *Objects) drop(k *kind, key string) {
	if _, known := k.objects[key]; known {
		delete(k.objects, key)
		k.revision++
		c.notify()
	}
}

func (c *Objects) notify() {
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *Objects) failed(k *kind, err error) {
	if errors.Is(err, context.Canceled) {
		return // the exporter ends
	}
	reason := "other"
	switch {
	case errors.As(err, new(versionError)):
		reason = "version"
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		reason = "expired"
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		reason = "forbidden"
	case apierrors.IsNotFound(err):
		reason = "missing"
	}
	text := label.Text(err.Error(), 512)
	c.note(func(now time.Time) {
		k.errors[reason]++
		k.health.failed(now, reason, text)
	})
	c.log.Warn("list or watch failed", "resource", k.name(), "reason", reason, "err", text)
}

// Update implements exporterkit.Collector: the state of the connection. Its error is Err's, of all kinds.
func (c *Objects) Update(ch chan<- prometheus.Metric) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(c.requests.Load()))
	for _, k := range c.kinds {
		ch <- prometheus.MustNewConstMetric(syncedDesc, prometheus.GaugeValue, boolean(k.synced), k.name())
		ch <- prometheus.MustNewConstMetric(objectsDesc, prometheus.GaugeValue, float64(len(k.objects)), k.name())
		ch <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.CounterValue, float64(k.rejected), k.name())
		ch <- prometheus.MustNewConstMetric(leftOutDesc, prometheus.CounterValue, float64(k.leftOut), k.name())
		ch <- prometheus.MustNewConstMetric(unknownDesc, prometheus.CounterValue, float64(k.unknown), k.name())
		for _, reason := range reasons {
			ch <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(k.errors[reason]), k.name(), reason)
		}
	}
	return c.errOf(nil)
}

// Checked is the outcome of Check for a kind.
type Checked struct {
	Resource string
	Err      error
	Note     string
}

// Check waits until each kind was listed, and reports it.
func (c *Objects) Check(ctx context.Context) []Checked {
	var results []Checked
	for resource, k := range c.kinds {
		r := Checked{Resource: resource}
		if !c.Synced(ctx, resource) {
			c.mu.Lock()
			r.Err = fmt.Errorf("not listed in time (%s)", summary(k.errors))
			c.mu.Unlock()
		} else {
			c.mu.Lock()
			r.Note = fmt.Sprintf("%d objects", len(k.objects))
			c.mu.Unlock()
		}
		results = append(results, r)
	}
	sort.Slice(results, func(i, j int) bool { return results[i].Resource < results[j].Resource })
	return results
}

func summary(errors map[string]uint64) string {
	var seen []string
	for _, reason := range reasons {
		if errors[reason] > 0 {
			seen = append(seen, fmt.Sprintf("%s: %d", reason, errors[reason]))
		}
	}
	if len(seen) == 0 {
		return "no answer"
	}
	return strings.Join(seen, ", ")
}

// All returns the objects of a kind by name, see Kind; none if it is not followed.
func All[P Object](c *Objects, name string) map[string]P {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds[name]
	if k == nil {
		return nil
	}
	found := make(map[string]P, len(k.objects))
	for name, o := range k.objects {
		found[name] = o.Object.(P)
	}
	return found
}

// Some returns the objects of a kind that are wanted, in no order.
func Some[P Object](c *Objects, name string, wanted func(P) bool) (found []P) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.kinds[name]; k != nil {
		for _, o := range k.objects {
			if p := o.Object.(P); wanted(p) {
				found = append(found, p)
			}
		}
	}
	return found
}

// Revision is another number after each change of a kind, and 0 before the first list.
func (c *Objects) Revision(name string) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k := c.kinds[name]; k != nil && k.synced {
		return k.revision + 1
	}
	return 0
}

// Requests is how many requests were sent to the API server.
func (c *Objects) Requests() uint64 { return c.requests.Load() }

// Changed receives after every change; several changes may come as one.
func (c *Objects) Changed() <-chan struct{} { return c.changed }

func boolean(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Put takes an object as if the API server had listed it, for tests.
func (c *Objects) Put(name string, u *unstructured.Unstructured) {
	var text bytes.Buffer
	if err := unstructured.UnstructuredJSONScheme.Encode(u, &text); err != nil {
		panic(err) // of maps, strings and numbers
	}
	c.update(c.kinds[name], text.Bytes())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kinds[name].synced = true
}
