package kube

import (
	"log/slog"
	"testing"

	"k8s.io/client-go/rest"
)

// A kind that can be done without fails nothing where it may not be listed; that is counted.
func TestForbiddenKindThatIsDoneWithout(t *testing.T) {
	a := startAPI(t)
	a.forbid("goods")
	c, err := New(&rest.Config{Host: a.URL}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	Follow[thing](c, Kind{Group: "example.org", Versions: []string{"v1"}, Resource: "goods", Dispensable: true}, nil)
	if err := c.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !c.Synced(t.Context(), "goods") {
		t.Fatal("not synced")
	}
	if err := update(c); err != nil {
		t.Errorf("it fails: %v", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kinds["goods"].errors["forbidden"] == 0 {
		t.Error("it is not counted")
	}
}
