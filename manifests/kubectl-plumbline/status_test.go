package main

import (
	"strings"
	"testing"

	"github.com/plumbline/plumbline/rules/why"
)

// Where the agent is not heard of, the command that status gives finds its pods in whatever namespace it was installed.
func TestWhereThePodsAre(t *testing.T) {
	c := central(t)
	c.o.cluster, c.o.clusterNamed = "eu", true
	var out strings.Builder
	if err := c.status(t.Context(), &out, why.PlainPen(&out)); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "Not on only-there: ") || !strings.Contains(out.String(), "--all-namespaces --selector app.kubernetes.io/part-of=plumbline") {
		t.Error(out.String())
	}
}
