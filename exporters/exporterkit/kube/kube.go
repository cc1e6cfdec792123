// Package kube follows custom resources on a Kubernetes cluster for the exporters: it lists each
// kind once, is told of changes, and counts what goes wrong on the way.
package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// Metrics of the connection to the API server.
var (
	syncedDesc = prometheus.NewDesc("plumbline_kubernetes_synced",
		"Whether a kind of object was listed completely since the start: 1 yes, 0 no.", []string{"resource"}, nil)
	objectsDesc = prometheus.NewDesc("plumbline_kubernetes_objects",
		"Objects of a kind that are known.", []string{"resource"}, nil)
	rejectedDesc = prometheus.NewDesc("plumbline_kubernetes_rejected_total",
		"Objects received that could not be read; each is left out until it changes.", []string{"resource"}, nil)
	unknownDesc = prometheus.NewDesc("plumbline_kubernetes_unknown_values_total",
		"Objects received with a state that this version does not know.", []string{"resource"}, nil)
	errorsDesc = prometheus.NewDesc("plumbline_kubernetes_errors_total",
		"Lists and watches that failed: expired (410 Gone, listed again), forbidden, missing (no such resource), other.",
		[]string{"resource", "reason"}, nil)
	requestsDesc = prometheus.NewDesc("plumbline_kubernetes_requests_total",
		"Requests sent to the API server.", nil, nil)
)

var reasons = []string{"expired", "forbidden", "missing", "other"}

// Objects knows the objects of the kinds it follows.
type Objects struct {
	log      *slog.Logger
	requests *atomic.Uint64
	client   dynamic.Interface
	now      func() time.Time

	mu      sync.Mutex
	kinds   map[string]*kind // by resource
	changed chan struct{}
}

// kind is one kind of object.
type kind struct {
	optional  bool // a cluster may lack it
	allowed   bool // it is followed only where that is allowed
	resource  schema.GroupVersionResource
	namespace string
	decode    func(*unstructured.Unstructured) (Object, error)
	informer  cache.SharedIndexInformer
	objects   map[string]Object // by name, or by namespace and name
	fields    string            // selects the objects that are followed
	spread    bool              // over namespaces in which the same names may be
	keep      func(*unstructured.Unstructured)
	rejected  uint64
	unknown   uint64
	errors    map[string]uint64 // by reason
	health    health
}

// Object is what is kept of an object.
type Object interface {
	// Odd names a field whose value is not known to this version, and the value; else "".
	Odd() string
}

// checkable objects say what cannot be true of them, or is above their bounds; such an object is
// rejected like one that cannot be read.
type checkable interface{ Check() error }

// Config returns how to reach the API server: as the kubeconfig file says, or, without one,
// as the pod's own service account.
func Config(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("no way to the Kubernetes API server: %w", err)
	}
	return config, nil
}

// New returns Objects that follow nothing yet.
func New(config *rest.Config, log *slog.Logger) (*Objects, error) {
	c := &Objects{log: log, requests: &atomic.Uint64{}, now: time.Now, kinds: map[string]*kind{}, changed: make(chan struct{}, 1)}
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, c.requests} })
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	c.client = client
	return c, nil
}

// Follow adds a kind, of which T is read, before Run. namespace is empty for kinds without
// one and for all namespaces.
func Follow[T any, P interface {
	*T
	Object
}](c *Objects, resource schema.GroupVersionResource, namespace string) {
	k := &kind{resource: resource, namespace: namespace, decode: decoder[T, P], objects: map[string]Object{}, errors: map[string]uint64{}}
	for _, reason := range reasons {
		k.errors[reason] = 0
	}
	c.kinds[resource.Resource] = k
}

// FollowIfServed is Follow for a kind that a cluster may lack: then it is looked for again
// now and then, and its absence is no error.
func FollowIfServed[T any, P interface {
	*T
	Object
}](c *Objects, resource schema.GroupVersionResource, namespace string) {
	Follow[T, P](c, resource, namespace)
	c.kinds[resource.Resource].optional = true
}

// FollowIfAllowed is Follow for a kind that can be done without: where it may not be listed, there are no such objects, which is counted and no
// failure; it is tried again now and then. keep is as of FollowSelected.
func FollowIfAllowed[T any, P interface {
	*T
	Object
}](c *Objects, resource schema.GroupVersionResource, keep func(*unstructured.Unstructured)) {
	Follow[T, P](c, resource, "")
	k := c.kinds[resource.Resource]
	k.allowed, k.keep = true, keep
}

// FollowSelected is Follow for the objects of all namespaces that a field selector selects, such as the pods of one node, which
// are then known by NAMESPACE/NAME. keep drops what is not needed of each, before it is kept in memory.
func FollowSelected[T any, P interface {
	*T
	Object
}](c *Objects, resource schema.GroupVersionResource, fields string, keep func(*unstructured.Unstructured)) {
	Follow[T, P](c, resource, "")
	k := c.kinds[resource.Resource]
	k.fields, k.keep, k.spread = fields, keep, true
}

// key is what an object is known by.
func (k *kind) key(u *unstructured.Unstructured) string {
	if k.spread {
		return u.GetNamespace() + "/" + u.GetName()
	}
	return u.GetName()
}

type counted struct {
	next     http.RoundTripper
	requests *atomic.Uint64
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.requests.Add(1)
	return c.next.RoundTrip(r)
}

// decoder reads what T needs of an object.
func decoder[T any, P interface {
	*T
	Object
}](u *unstructured.Unstructured) (Object, error) {
	var t T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &t); err != nil {
		return nil, err
	}
	return P(&t), nil
}

// Run follows the objects until ctx ends.
func (c *Objects) Run(ctx context.Context) error {
	for _, k := range c.kinds {
		if err := c.follow(ctx, k); err != nil {
			return err
		}
	}
	return nil
}

func (c *Objects) follow(ctx context.Context, k *kind) error {
	var resource dynamic.ResourceInterface = c.client.Resource(k.resource)
	if k.namespace != "" {
		resource = c.client.Resource(k.resource).Namespace(k.namespace)
	}
	listWatch := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = k.fields
			list, err := resource.List(ctx, o)
			if c.spared(k, err) {
				list, err = &unstructured.UnstructuredList{}, nil
			}
			if err != nil {
				c.failed(k, err)
				return nil, err
			}
			if list.GetContinue() == "" { // the last page
				c.note(k.health.well)
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = k.fields
			w, err := resource.Watch(ctx, o)
			if c.spared(k, err) {
				// A silent watch that ends soon: the next one may find the kind.
				silent := watch.NewFake()
				time.AfterFunc(absentInterval, silent.Stop)
				c.note(k.health.well)
				return silent, nil
			}
			if err != nil {
				c.failed(k, err)
				return nil, err
			}
			c.note(k.health.opened)
			w = followed{w, sync.OnceFunc(func() { c.note(k.health.ended) })}
			return watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
				if e.Type == watch.Error {
					c.failed(k, apierrors.FromObject(e.Object))
				} else {
					c.note(k.health.well)
				}
				return e, true
			}), nil
		},
	}
	k.informer = cache.NewSharedIndexInformer(listFirst{listWatch}, &unstructured.Unstructured{}, 0, cache.Indexers{})
	err := errors.Join(
		k.informer.SetTransform(k.strip),
		// The handler is not told of every failure (not of 410 Gone, not of a refused
		// connection), so they are counted where they happen, above.
		k.informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}),
	)
	if err != nil {
		return err
	}
	_, err = k.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { c.update(k, o) },
		UpdateFunc: func(_, o any) { c.update(k, o) },
		DeleteFunc: func(o any) { c.remove(k, o) },
	})
	if err != nil {
		return err
	}
	c.note(func(now time.Time) { k.health.began = now })
	go k.informer.RunWithContext(ctx)
	return nil
}

// spared says whether the error of a list or watch says no more than that there are no objects of the kind here. That they may not be seen is counted.
func (c *Objects) spared(k *kind, err error) bool {
	switch {
	case err == nil:
		return false
	case k.allowed && apierrors.IsForbidden(err):
		c.mu.Lock()
		defer c.mu.Unlock()
		if k.errors["forbidden"]++; k.errors["forbidden"] == 1 {
			c.log.Warn("objects may not be listed; they are done without", "resource", k.resource.Resource, "err", label.Text(err.Error(), 512))
		}
		return true
	}
	return k.optional && apierrors.IsNotFound(err)
}

// absentInterval is how soon a kind that the cluster lacked is looked for again.
const absentInterval = time.Minute

// listFirst makes the informer list before it watches. The newer way, one watch for both,
// gives up on an absent kind, and fails first on a server whose storage cannot do it.
type listFirst struct{ *cache.ListWatch }

func (listFirst) IsWatchListSemanticsUnSupported() bool { return true }

// strip drops the large parts that nothing here reads, before the informer keeps them.
func (k *kind) strip(o any) (any, error) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	if k.keep != nil {
		k.keep(u)
		return u, nil
	}
	u.SetManagedFields(nil)
	// Our own marks are read, and who made a PersistentVolume or has taken it over; others' annotations may be as large as the object itself.
	annotations := u.GetAnnotations()
	maps.DeleteFunc(annotations, func(name, _ string) bool {
		return !strings.HasPrefix(name, "plumbline.io/") && !strings.HasPrefix(name, "pv.kubernetes.io/")
	})
	if len(annotations) == 0 {
		annotations = nil
	}
	u.SetAnnotations(annotations)
	for _, field := range []string{"snapshots", "instanceEngines", "instanceReplicas", "backingImages"} {
		unstructured.RemoveNestedField(u.Object, "status", field)
	}
	return u, nil
}

func (c *Objects) update(k *kind, o any) {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	decoded, err := k.decode(u)
	if c, ok := decoded.(checkable); ok && err == nil {
		err = c.Check()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.notify()
	if err != nil {
		k.rejected++
		delete(k.objects, k.key(u))
		c.log.Error("object cannot be read", "resource", k.resource.Resource, "name", label.Value(u.GetName()), "err", label.Text(err.Error(), 512))
		return
	}
	if odd := decoded.Odd(); odd != "" {
		k.unknown++
		if before := k.objects[k.key(u)]; before == nil || before.Odd() != odd {
			c.log.Warn("object has a value that is not known", "resource", k.resource.Resource, "name", label.Value(u.GetName()), "field", label.Value(odd))
		}
	}
	k.objects[k.key(u)] = decoded
}

func (c *Objects) remove(k *kind, o any) {
	// What was deleted while the watch was down comes as a tombstone.
	if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = tombstone.Obj
	}
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(k.objects, k.key(u))
	c.notify()
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
	c.log.Warn("list or watch failed", "resource", k.resource.Resource, "reason", reason, "err", text)
}

// Update implements exporterkit.Collector: the state of the connection. Its error is Err's, of all kinds.
func (c *Objects) Update(ch chan<- prometheus.Metric) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(requestsDesc, prometheus.CounterValue, float64(c.requests.Load()))
	for _, k := range c.kinds {
		ch <- prometheus.MustNewConstMetric(syncedDesc, prometheus.GaugeValue, boolean(k.synced()), k.resource.Resource)
		ch <- prometheus.MustNewConstMetric(objectsDesc, prometheus.GaugeValue, float64(len(k.objects)), k.resource.Resource)
		ch <- prometheus.MustNewConstMetric(rejectedDesc, prometheus.CounterValue, float64(k.rejected), k.resource.Resource)
		ch <- prometheus.MustNewConstMetric(unknownDesc, prometheus.CounterValue, float64(k.unknown), k.resource.Resource)
		for _, reason := range reasons {
			ch <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(k.errors[reason]), k.resource.Resource, reason)
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
		if !cache.WaitForCacheSync(ctx.Done(), k.informer.HasSynced) {
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

// All returns the objects of a kind by name, see FollowSelected; none if it is not followed.
func All[P Object](c *Objects, resource string) map[string]P {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds[resource]
	if k == nil {
		return nil
	}
	found := make(map[string]P, len(k.objects))
	for name, o := range k.objects {
		found[name] = o.(P)
	}
	return found
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

// Put takes an object as if the API server had sent it, for tests.
func (c *Objects) Put(resource string, u *unstructured.Unstructured) { c.update(c.kinds[resource], u) }
