package collector

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// FuzzVolumes reads an answer of Mayastor's API server: what is taken of it is complete.
func FuzzVolumes(f *testing.F) {
	f.Add([]byte(`{"entries":[{"spec":{"uuid":"u","num_replicas":3},"state":{"status":"Online","uuid":"u"}}]}`))
	f.Add([]byte(`{"entries":[{"spec":{"uuid":"u"}},{"spec":{"num_replicas":-1}},7],"next_token":0}`))
	f.Add([]byte(`{"entries":[],"next_token":1}`))
	f.Add([]byte(`{"entries":null}`))
	f.Fuzz(func(t *testing.T, answer []byte) {
		requests := 0
		client := &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
			// Pages may never end: that it gives up is what is tested.
			if requests++; requests > 100 {
				t.Fatal("over 100 pages of one answer were requested")
			}
			return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(answer)), Request: r, Header: http.Header{}}, nil
		})}
		c := &restClient{base: "http://api", http: client}
		good, _, err := c.volumes(context.Background())
		if err != nil && len(good) > 0 {
			t.Error("volumes beside an error")
		}
		for _, v := range good {
			if v.Spec.UUID == "" || v.Spec.NumReplicas == nil {
				t.Errorf("incomplete volume %+v", v)
			}
		}
		var any1 any
		if err := c.get(context.Background(), "/"+strings.Repeat("x", 3), nil, &any1); err != nil && any1 != nil {
			t.Error("an answer beside an error")
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
