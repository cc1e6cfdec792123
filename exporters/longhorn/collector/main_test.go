package collector

import (
	"maps"
	"slices"
	"testing"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/world"
)

func TestMain(m *testing.M) {
	kubetest.Fetch(slices.Collect(maps.Values(modules))...)
	world.Main(m)
}
