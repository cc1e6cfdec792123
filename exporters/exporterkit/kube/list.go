package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

const (
	// absentInterval is how soon a kind that the cluster lacked is requested again.
	absentInterval = time.Minute
	// pageSize is how many objects the API server sends at once where it does not stream lists.
	pageSize = 500
	// pageTimeout bounds the wait for a page, and for the next object of a list that is streamed.
	pageTimeout = time.Minute
	// streamTimeout bounds the wait for the first object of a list that is streamed: a server that knows nothing of
	// streams may send none.
	streamTimeout = 5 * time.Second
	// watchTime is how long a watch lasts at least before it is opened anew, and half of what it lasts at the most.
	watchTime = 5 * time.Minute
	// shortWatch is what a watch must last, or have a change, before the next one is opened at once.
	shortWatch = time.Second
	// healthyAfter is how long a kind must be followed without a failure before the next failure is answered as if it
	// were the first.
	healthyAfter = 2 * time.Minute
)

// backoff returns the pauses between attempts that fail.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 6, Cap: 30 * time.Second}
}

// Select changes the labels that select a kind's objects, before Run or at any time after. Objects that the new
// selection lacks are forgotten once it was listed; without labels an Idle kind has none.
func (c *Objects) Select(name, labels string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := c.kinds[name]
	if k == nil || k.Labels == labels {
		return
	}
	k.Labels, k.synced = labels, false
	if k.reselect != nil {
		k.health.began = c.now()
		k.reselect()
	}
}

// follow lists and watches a kind until ctx ends.
func (c *Objects) follow(ctx context.Context, k *kind) {
	pauses := backoff()
	for ctx.Err() == nil {
		began := time.Now()
		within, labels := c.selection(ctx, k)
		err := c.once(within, k, labels)
		if ctx.Err() != nil {
			return
		}
		if within.Err() != nil { // there is another selection
			k.at = ""
			continue
		}
		if err == nil {
			continue // the watch ended, as each does
		}
		if refused(err) {
			k.at = ""
		}
		pause := absentInterval
		if !c.spared(k, err) {
			c.failed(k, err)
			if time.Since(began) >= healthyAfter {
				pauses = backoff()
			}
			pause = pauses.Step()
		}
		select {
		case <-within.Done():
		case <-time.After(pause):
		}
	}
}

// refused reports whether the API server does not let a watch go on from where it was, by the error: what is known is
// listed anew then, which after a mere interruption it is not.
func refused(err error) bool {
	var status *apierrors.StatusError
	return errors.As(err, &status) && !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err)
}

// selection returns what the kind's objects are selected by, and a context that ends with it.
func (c *Objects) selection(ctx context.Context, k *kind) (context.Context, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k.reselect != nil {
		k.reselect()
	}
	within, cancel := context.WithCancel(ctx)
	k.reselect = cancel
	return within, k.Labels
}

// once lists a kind, unless it is known what to go on from, and watches it until that ends.
func (c *Objects) once(ctx context.Context, k *kind, labels string) error {
	if k.Idle && labels == "" {
		c.begin(k)
		c.note(k.health.opened) // what is not followed cannot fall behind
		c.listed(k)
		<-ctx.Done()
		c.note(k.health.ended)
		return nil
	}
	if k.at == "" {
		if err := c.list(ctx, k, labels); err != nil || k.at == "" {
			return err
		}
	}
	return c.watch(ctx, k, labels, false)
}

// list lists a kind: as a stream, which costs the API server and us least, or else page by page. A stream goes on as a
// watch.
func (c *Objects) list(ctx context.Context, k *kind, labels string) error {
	if k.version == "" {
		k.version = k.Versions[0]
	}
	if !k.paged {
		err := c.watch(ctx, k, labels, true)
		if k.at != "" || ctx.Err() != nil {
			return err
		}
		switch {
		case apierrors.IsNotFound(err):
			return c.elsewhere(ctx, k, err)
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return err
		}
		k.paged = errors.Is(err, errSilent) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) // it cannot stream lists
	}
	c.begin(k)
	query := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for {
		answer, err := c.page(ctx, k, labels, query)
		if apierrors.IsNotFound(err) {
			return c.elsewhere(ctx, k, err)
		}
		if err != nil {
			return err
		}
		if answer.Continue == "" {
			k.at = answer.ResourceVersion
			c.listed(k)
			return nil
		}
		c.note(k.health.proceeds)
		query.Set("continue", answer.Continue)
	}
}

// page takes the objects of one page.
func (c *Objects) page(ctx context.Context, k *kind, labels string, query url.Values) (answer metav1.ListMeta, err error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	body, err := c.get(ctx, k.path(), k.selected(query, labels))
	if err != nil {
		return answer, err
	}
	defer body.Close()
	d := json.NewDecoder(body)
	var text json.RawMessage // one object at a time
	for err == nil {
		var t json.Token
		if t, err = d.Token(); err != nil {
			break
		}
		switch t {
		case json.Delim('{'):
		case json.Delim('}'):
			return answer, nil
		case "metadata":
			err = d.Decode(&answer)
		case "items":
			if t, err = d.Token(); err == nil && t == json.Delim('[') {
				for err == nil && d.More() {
					if err = d.Decode(&text); err == nil {
						c.update(k, text)
					}
				}
				if err == nil {
					_, err = d.Token()
				}
			}
		default:
			err = d.Decode(&text)
		}
	}
	return answer, fmt.Errorf("list of %s: %w", k.name(), err)
}

// errSilent is returned if nothing of a streamed list arrives.
var errSilent = errors.New("the API server streams no list")

// event is one line of a watch.
type event struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// watch takes changes until the watch ends; if stream is set, beginning with all objects that there are. A watch that
// just ends is no error.
func (c *Objects) watch(ctx context.Context, k *kind, labels string, stream bool) (err error) {
	began, lasts := time.Now(), watchTime+rand.N(watchTime)
	ctx, cancel := context.WithTimeout(ctx, lasts+pageTimeout)
	defer cancel()
	query := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(int(lasts.Seconds()))}}
	if stream {
		query.Set("sendInitialEvents", "true")
		query.Set("resourceVersionMatch", string(metav1.ResourceVersionMatchNotOlderThan))
	} else {
		query.Set("resourceVersion", k.at)
	}
	late := time.AfterFunc(streamTimeout, cancel) // unless something comes
	defer late.Stop()
	if !stream {
		late.Stop()
	}
	body, err := c.get(ctx, k.path(), k.selected(query, labels))
	switch {
	case err != nil && stream && ctx.Err() != nil:
		return errSilent
	case err != nil:
		return err
	}
	defer body.Close()
	if stream {
		c.begin(k)
	} else {
		c.note(k.health.opened)
	}
	defer func() {
		if err == nil {
			c.note(k.health.ended)
		}
	}()
	d := json.NewDecoder(body)
	var e event
	for came := false; ; came = true {
		if err := d.Decode(&e); err != nil {
			switch {
			case k.at == "" && !came:
				return errSilent
			case k.at == "":
				return fmt.Errorf("the list of %s ended before its end: %w", k.name(), err)
			case !came && time.Since(began) < shortWatch:
				return fmt.Errorf("the watch of %s ended at once: %w", k.name(), err)
			}
			return nil // the next one goes on from here
		}
		if k.at == "" {
			late.Reset(pageTimeout)
			c.note(k.health.proceeds)
		}
		version := ""
		switch e.Type {
		case "ADDED", "MODIFIED":
			version = c.update(k, e.Object)
		case "DELETED":
			version = c.remove(k, e.Object)
		case "BOOKMARK":
			var o struct {
				Metadata struct {
					ResourceVersion string            `json:"resourceVersion"`
					Annotations     map[string]string `json:"annotations"`
				} `json:"metadata"`
			}
			if err := json.Unmarshal(e.Object, &o); err != nil {
				return fmt.Errorf("bookmark of %s: %w", k.name(), err)
			}
			version = o.Metadata.ResourceVersion
			if stream && k.at == "" && o.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true" {
				late.Stop()
				k.at = version
				c.listed(k)
				c.note(k.health.opened)
			}
		case "ERROR":
			return statusOf(http.StatusInternalServerError, e.Object)
		}
		if k.at != "" {
			c.note(k.health.well)
			if version != "" {
				k.at = version
			}
		}
	}
}

// begin begins a list: what it has is of a new round.
func (c *Objects) begin(k *kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k.round++
	k.full = false
}

// listed ends a list: what it did not have is gone.
func (c *Objects) listed(k *kind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, o := range k.objects {
		if o.round != k.round {
			c.drop(k, key)
		}
	}
	k.synced = true
	k.health.well(c.now())
	c.notify()
}

// path is where the kind's objects are.
func (k *kind) path() string {
	path := "/apis/" + k.Group + "/" + k.version
	if k.Group == "" {
		path = "/api/" + k.version
	}
	if k.Namespace != "" {
		path += "/namespaces/" + k.Namespace
	}
	return path + "/" + k.Resource
}

// selected adds to a query what selects the kind's objects.
func (k *kind) selected(query url.Values, labels string) url.Values {
	if k.Fields != "" {
		query.Set("fieldSelector", k.Fields)
	}
	if labels != "" {
		query.Set("labelSelector", labels)
	}
	return query
}

// get sends a request, and returns the body of the answer, which is closed by the caller.
func (c *Objects) get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	address := c.base.JoinPath(path)
	address.RawQuery = query.Encode()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	answer, err := c.client.Do(request)
	if err != nil {
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	const most = 64 << 10
	text, err := io.ReadAll(io.LimitReader(answer.Body, most))
	return nil, errors.Join(statusOf(answer.StatusCode, text), err)
}

// statusOf is the error of an answer that is none of objects.
func statusOf(code int, text []byte) error {
	var s metav1.Status
	if json.Unmarshal(text, &s) == nil && s.Kind == "Status" && s.Code != 0 {
		return apierrors.FromObject(&s)
	}
	if reason, ok := map[int]metav1.StatusReason{http.StatusNotFound: metav1.StatusReasonNotFound, http.StatusForbidden: metav1.StatusReasonForbidden,
		http.StatusUnauthorized: metav1.StatusReasonUnauthorized, http.StatusGone: metav1.StatusReasonGone}[code]; ok {
		s.Reason = reason
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: int32(code), Reason: s.Reason,
		Message: fmt.Sprintf("status %d: %s", code, label.Text(string(text), 256))}}
}

// spared reports whether the error of a list or watch means no more than that there are no objects of the kind here,
// and takes note of that. That they may not be seen is counted.
func (c *Objects) spared(k *kind, err error) bool {
	forbidden := k.Dispensable && apierrors.IsForbidden(err)
	if !forbidden && !(k.Optional && apierrors.IsNotFound(err) && !errors.As(err, new(versionError))) {
		return false
	}
	c.begin(k)
	c.listed(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	if forbidden {
		if k.errors["forbidden"]++; k.errors["forbidden"] == 1 {
			c.log.Warn("objects may not be listed; they are done without", "resource", k.name(), "err", label.Text(err.Error(), 512))
		}
	}
	return true
}
