package kube

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// firstList is how long nothing of the first list of a kind may come before it counts as failed.
	firstList = time.Minute
	// staleAfter is how long a kind's objects may be without a sign that they are those of the moment.
	staleAfter = 5 * time.Minute
	// steady is how long a watch must be open before its silence means that nothing changed.
	steady = time.Minute
)

// health is what is known of the lists and watches of a kind. Signs that its objects are those of the moment are a
// complete list, an event (bookmarks are some), a watch that ended without an error, and one that has been open for a
// while.
type health struct {
	began    time.Time // when the kind began to be followed, or a part of a list came; zero before
	good     time.Time // the last sign
	watching time.Time // when the watch under way was opened; zero if none is
	reason   string    // of the last failure; empty since a sign
	cause    string
}

// well notes a sign.
func (h *health) well(now time.Time) { h.good, h.reason, h.cause = now, "", "" }

// proceeds notes that a part of a list has come.
func (h *health) proceeds(now time.Time) { h.began = now }

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

// silent reports whether the watch under way has been open long enough to trust its silence.
func (h *health) silent(now time.Time) bool {
	return !h.watching.IsZero() && now.Sub(h.watching) >= steady
}

// err returns why the objects of a kind are not, or may not be, up to date; nil if they are.
func (h *health) err(now time.Time, synced bool) error {
	why, advice := h.cause, "see whether the API server is up and answers"
	switch h.reason {
	case "":
		why = "no answer"
	case "forbidden":
		advice = "grant get, list and watch on it"
	case "missing":
		advice = "install its definition, or do not observe it"
	case "version":
		advice = "use a version of this program that knows one of them, or do not observe it"
	}
	refused := slices.Contains([]string{"forbidden", "missing", "version"}, h.reason)
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

func (c *Objects) note(f func(now time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c.now())
}

// Err returns which of the kinds could not be listed, or had no answer for minutes, and why: their objects are missing
// or old. Without resources it covers all kinds. A kind that is not followed is left out.
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
		resource := schema.GroupResource{Group: k.Group, Resource: k.Resource}
		if err := k.health.err(c.now(), k.synced); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", resource, err))
		}
		if k.full {
			errs = append(errs, fmt.Errorf("%s: there are too many: %d are kept, which is the most, and the others are left out (plumbline_kubernetes_left_out_total)",
				resource, len(k.objects)))
		}
	}
	return errors.Join(errs...)
}

// Synced waits until each of the kinds was listed; it is false if ctx ended before.
func (c *Objects) Synced(ctx context.Context, names ...string) bool {
	return c.await(ctx, names, func(k *kind) bool { return k.synced })
}

// Settled waits until each of the kinds was listed or Err reports why it was not. It returns false if ctx ended before.
func (c *Objects) Settled(ctx context.Context, names ...string) bool {
	return c.await(ctx, names, func(k *kind) bool { return k.synced || k.health.err(c.now(), false) != nil })
}

func (c *Objects) await(ctx context.Context, names []string, is func(*kind) bool) bool {
	const interval = 100 * time.Millisecond
	return wait.PollUntilContextCancel(ctx, interval, true, func(context.Context) (bool, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, name := range names {
			if k := c.kinds[name]; k != nil && !is(k) {
				return false, nil
			}
		}
		return true, nil
	}) == nil
}
