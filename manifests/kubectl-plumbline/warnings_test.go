package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A store that answers from a part of its data, as Thanos with a store that is down, reports that in a warning: it is
// printed once, and sanitized. Prometheus' remarks on a query are not printed.
func TestWarnings(t *testing.T) {
	recorded := lab()
	partly := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &edited{ResponseWriter: w}
		recorded.ServeHTTP(answer, r)
		fmt.Fprint(w, strings.Replace(answer.body.String(), `"status":"success"`, `"status":"success","warnings":["receive-0: connection refused\u001b[2J","PromQL info: ignored a histogram"]`, 1))
	})
	c, notes := fake(t, called{"a/p:9090", partly})
	if _, err := c.runWhy(t); err != nil {
		t.Fatal(err)
	}
	if output := notes.String(); strings.Count(output, "receive-0: connection refused?[2J") != 1 || strings.Contains(output, "PromQL") {
		t.Errorf("printed: %q", output)
	}
}

// edited keeps an answer's body.
type edited struct {
	http.ResponseWriter
	body strings.Builder
}

func (e *edited) Write(p []byte) (int, error) { return e.body.Write(p) }
