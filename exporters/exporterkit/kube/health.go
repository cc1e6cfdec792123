package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

const (
	// firstList is how long the first list of a kind may take before it counts as failed.
	firstList = time.Minute
	// staleAfter is how long a kind's objects may be without a sign that they are those of the moment.
	staleAfter = 5 * time.Minute
	// steady is how long a watch must be open before its silence says that nothing changed.
	steady = time.Minute
)

// health is what is known of the lists and watches of a kind. Signs that its objects are those of the moment are a complete
// list, an event (bookmarks are some), a watch that ended without an error, and one that has been open for a while.
type health struct {
	began    time.Time // when the kind began to be followed; zero before
	good     time.Time // the last sign
	watching time.Time // when the watch under way was opened; zero if none is
	reason   string    // of the last failure; empty since a sign
	cause    string
}

// well notes a sign.
func (h *health) well(now time.Time) { h.good, h.reason, h.cause = now, "", "" }

// opened notes a watch, which is no sign by itself: it may end with an error at once.
func (h *health) opened(now time.Time) { h.watching = now }

// ended notes the end of the watch; if it failed, that was noted before.
func (h *health) ended(now time.Time) {
	if !h.watching.IsZero() {
		h.watching = time.Time{}
		h.well(now)
	}
}

// failed notes a list or watch that failed.
func (h *health) failed(now time.Time, reason, cause string) {
	if h.silent(now) {
		h.good = now
	}
	h.watching, h.reason, h.cause = time.Time{}, reason, cause
}

// silent says whether the watch under way has been open long enough to trust its silence.
func (h *health) silent(now time.Time) bool {
	return !h.watching.IsZero() && now.Sub(h.watching) >= steady
}

// err says why the objects of a kind are not, or may not be, those of the moment; nil if they are.
func (h *health) err(now time.Time, synced bool) error {
	why, advice := h.cause, "see whether the API server is up and answers"
	switch h.reason {
	case "":
		why = "no answer"
	case "forbidden":
		advice = "grant get, list and watch on it"
	case "missing":
		advice = "install its definition, or do not observe it"
	}
	refused := h.reason == "forbidden" || h.reason == "missing"
	switch {
	case h.began.IsZero():
		return nil
	case !synced && (refused || now.Sub(h.began) >= firstList):
		return fmt.Errorf("never listed: %s; %s", why, advice)
	case synced && !h.silent(now) && now.Sub(h.good) >= staleAfter:
		return fmt.Errorf("not followed since %s, and its objects are as of then: %s; %s", h.good.UTC().Format(time.RFC3339), why, advice)
	}
	return nil
}

// followed is a watch whose end is told.
type followed struct {
	watch.Interface
	ended func()
}

// Stop implements watch.Interface. The informer stops each watch, also one that the server ended.
func (f followed) Stop() {
	f.Interface.Stop()
	f.ended()
}

func (c *Objects) note(f func(now time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.now())
}

// Err says which of the kinds could not be listed, or have not been heard of for minutes, so that their objects are missing or
// old, and why; without resources it is of all kinds. A kind that is not followed is left out.
func (c *Objects) Err(resources ...string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.errOf(resources)
}

// errOf is Err; c.mu is held.
func (c *Objects) errOf(resources []string) error {
	if len(resources) == 0 {
		for resource := range c.kinds {
			resources = append(resources, resource)
		}
		slices.Sort(resources)
	}
	var errs []error
	for _, resource := range resources {
		k := c.kinds[resource]
		if k == nil {
			continue
		}
		if err := k.health.err(c.now(), k.synced()); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", k.resource.GroupResource(), err))
		}
	}
	return errors.Join(errs...)
}

func (k *kind) synced() bool { return k.informer != nil && k.informer.HasSynced() }

// Synced waits until each of the kinds was listed; it is false if ctx ended before.
func (c *Objects) Synced(ctx context.Context, resources ...string) bool {
	for _, resource := range resources {
		if !cache.WaitForCacheSync(ctx.Done(), c.kinds[resource].synced) {
			return false
		}
	}
	return true
}

// Settled waits until each of the kinds was listed, or Err says why it was not; it is false if ctx ended before.
func (c *Objects) Settled(ctx context.Context, resources ...string) bool {
	for _, resource := range resources {
		settled := func() bool { return c.kinds[resource].synced() || c.Err(resource) != nil }
		if !cache.WaitForCacheSync(ctx.Done(), settled) {
			return false
		}
	}
	return true
}
