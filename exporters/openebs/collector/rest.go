package collector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// What is read of Mayastor's REST API v0 (mayastor-control-plane
// control-plane/rest/openapi-specs/v0_api_spec.yaml). Pointers are fields that may be missing.

type volumesPage struct {
	Entries   *[]json.RawMessage `json:"entries"`
	NextToken *int64             `json:"next_token"`
}

type restVolume struct {
	Spec struct {
		UUID        string `json:"uuid"`
		NumReplicas *int64 `json:"num_replicas"`
		// Target is there as long as the volume is published, even without its nexus.
		Target *struct {
			Node string `json:"node"`
		} `json:"target"`
	} `json:"spec"`
	State struct {
		UUID     string                 `json:"uuid"`
		Status   string                 `json:"status"`
		Target   *restNexus             `json:"target"`
		Topology map[string]restReplica `json:"replica_topology"`
	} `json:"state"`
}

type restNexus struct {
	UUID     string `json:"uuid"`
	Node     string `json:"node"`
	State    string `json:"state"`
	Rebuilds int64  `json:"rebuilds"`
}

type restReplica struct {
	Node            string `json:"node"`
	Pool            string `json:"pool"`
	State           string `json:"state"`
	ChildStatus     string `json:"child-status"`
	RebuildProgress *int64 `json:"rebuild-progress"`
	Usage           *struct {
		Allocated int64 `json:"allocated"`
	} `json:"usage"`
}

type restPool struct {
	ID string `json:"id"`
	// Spec is how the pool was made. State is missing while the pool's node is not online.
	Spec  *restPoolState `json:"spec"`
	State *restPoolState `json:"state"`
}

type restPoolState struct {
	Node   string   `json:"node"`
	Disks  []string `json:"disks"`
	Status string   `json:"status"`
}

// reported is the pool's state. Of a pool that its node does not report it is Unknown, and the place is the one where
// the pool was made.
func (p restPool) reported() *restPoolState {
	if p.State == nil && p.Spec != nil {
		return &restPoolState{p.Spec.Node, p.Spec.Disks, "Unknown"}
	}
	return p.State
}

type restNode struct {
	ID    string `json:"id"`
	State *struct {
		Endpoint string `json:"grpcEndpoint"`
		Status   string `json:"status"`
	} `json:"state"`
}

type restReplicaURI struct {
	UUID string `json:"uuid"`
	URI  string `json:"uri"`
}

type restDevice struct {
	Name      string   `json:"devname"`
	Links     []string `json:"devlinks"`
	Partition *struct {
		Parent string `json:"parent"`
	} `json:"partition"`
}

// pageSize is how many volumes one request returns.
const pageSize = 500

const (
	// maxAnswer bounds an answer, in bytes: 500 volumes have some 1 MB.
	maxAnswer = 32 << 20
	// maxHeader bounds an answer's header.
	maxHeader = 64 << 10
	// maxVolumes and maxListed bound the volumes, and the elements of other lists.
	maxVolumes, maxListed = 20_000, 20_000
	// maxNodes bounds the nodes, each of which is polled by itself.
	maxNodes = 1000
	// maxReplicas bounds a volume's replicas; Mayastor makes a handful.
	maxReplicas = 64
	// maxSize bounds a size in bytes: an exbibyte.
	maxSize = 1 << 60
	// maxLogged bounds a peer's text in the log.
	maxLogged = 512
)

// newRESTClient returns a client that follows no redirects.
func newRESTClient(base string) *restClient {
	return &restClient{base, &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 4, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

type restClient struct {
	base string
	http *http.Client
}

// get reads the answer to a request into v.
func (c *restClient) get(ctx context.Context, path string, query url.Values, v any) error {
	address := strings.TrimSuffix(c.base, "/") + "/v0" + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if len(body) > maxAnswer {
		return answerError{fmt.Errorf("GET %s: more than %d bytes", path, maxAnswer)}
	}
	if response.StatusCode != http.StatusOK {
		return statusError{path, label.Value(response.Status)}
	}
	if err := json.Unmarshal(body, v); err != nil {
		return answerError{fmt.Errorf("GET %s: %w", path, err)}
	}
	return nil
}

type statusError struct{ path, status string }

func (e statusError) Error() string { return "GET " + e.path + ": " + e.status }

// answerError is returned if the other side answers with invalid data.
type answerError struct{ error }

// list reads a list that is not paged.
func list[T any](ctx context.Context, c *restClient, path string, query url.Values, limit int, into *[]T) error {
	var all []T
	if err := c.get(ctx, path, query, &all); err != nil {
		return err
	}
	if len(all) > limit {
		return answerError{fmt.Errorf("GET %s: %d elements, over %d", path, len(all), limit)}
	}
	*into = all
	return nil
}

// check returns an error for impossible values of a volume.
func (v restVolume) check() error {
	switch {
	case v.Spec.UUID == "":
		return errors.New("no uuid")
	case v.Spec.NumReplicas == nil:
		return errors.New("no num_replicas")
	case *v.Spec.NumReplicas < 0 || *v.Spec.NumReplicas > maxReplicas:
		return fmt.Errorf("%d replicas are wanted", *v.Spec.NumReplicas)
	case len(v.State.Topology) > maxReplicas:
		return fmt.Errorf("it has %d replicas, over %d", len(v.State.Topology), maxReplicas)
	case v.State.Target != nil && (v.State.Target.Rebuilds < 0 || v.State.Target.Rebuilds > maxReplicas):
		return fmt.Errorf("%d rebuilds", v.State.Target.Rebuilds)
	}
	for name, r := range v.State.Topology {
		if r.Usage != nil && (r.Usage.Allocated < 0 || r.Usage.Allocated > maxSize) {
			return fmt.Errorf("replica %s takes %d bytes", label.Value(name), r.Usage.Allocated)
		}
	}
	return nil
}

// volumes reads all pages. An entry that cannot be read is in bad, the others are returned.
func (c *restClient) volumes(ctx context.Context) (good []restVolume, bad []error, err error) {
	token, seen := int64(0), map[int64]bool{}
	for {
		query := url.Values{"max_entries": {strconv.Itoa(pageSize)}}
		if token != 0 {
			query.Set("starting_token", strconv.FormatInt(token, 10))
		}
		var page volumesPage
		if err := c.get(ctx, "/volumes", query, &page); err != nil {
			return nil, nil, err
		}
		if page.Entries == nil {
			return nil, nil, answerError{errors.New("GET /volumes: no entries")}
		}
		for i, raw := range *page.Entries {
			var v restVolume
			err := json.Unmarshal(raw, &v)
			if err == nil {
				err = v.check()
			}
			if err != nil {
				bad = append(bad, fmt.Errorf("volume %q (entry %d of a page): %w", label.Value(v.Spec.UUID), i, err))
				continue
			}
			good = append(good, v)
		}
		if len(good)+len(bad) > maxVolumes {
			return nil, nil, answerError{fmt.Errorf("GET /volumes: more than %d volumes", maxVolumes)}
		}
		if page.NextToken == nil || *page.NextToken == 0 {
			return good, bad, nil
		}
		token = *page.NextToken
		if len(seen) > maxVolumes {
			return nil, nil, answerError{fmt.Errorf("GET /volumes: more than %d pages", maxVolumes)}
		}
		if seen[token] {
			return nil, nil, answerError{fmt.Errorf("GET /volumes: page %d comes twice", token)}
		}
		seen[token] = true
	}
}

// reasonOf sorts a failed call for the label "reason".
func reasonOf(err error) string {
	var answer answerError
	var status statusError
	var timeout net.Error
	switch {
	case errors.As(err, &answer):
		return "answer"
	case errors.As(err, &status):
		return "status"
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return "unavailable"
}

var reasons = []string{"answer", "status", "timeout", "unavailable"}
