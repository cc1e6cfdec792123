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
	ID    string `json:"id"`
	State *struct {
		Node   string   `json:"node"`
		Disks  []string `json:"disks"`
		Status string   `json:"status"`
	} `json:"state"`
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

// pageSize is how many volumes are asked for at once.
const pageSize = 500

// maxAnswer bounds what is read of one answer.
const maxAnswer = 64 << 20

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
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("GET %s: %w", path, err)
	}
	if response.StatusCode != http.StatusOK {
		return statusError{path, response.Status}
	}
	if err := json.Unmarshal(body, v); err != nil {
		return answerError{fmt.Errorf("GET %s: %w", path, err)}
	}
	return nil
}

type statusError struct{ path, status string }

func (e statusError) Error() string { return "GET " + e.path + ": " + e.status }

// answerError says that the other side answered, but with something that cannot be right.
type answerError struct{ error }

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
			switch {
			case err != nil:
			case v.Spec.UUID == "":
				err = errors.New("no uuid")
			case v.Spec.NumReplicas == nil:
				err = errors.New("no num_replicas")
			}
			if err != nil {
				bad = append(bad, fmt.Errorf("volume %q (entry %d of a page): %w", v.Spec.UUID, i, err))
				continue
			}
			good = append(good, v)
		}
		if page.NextToken == nil || *page.NextToken == 0 {
			return good, bad, nil
		}
		token = *page.NextToken
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
