package collector

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/world"
)

func TestMain(m *testing.M) {
	if err := kubetest.Fetch(slices.Collect(maps.Values(modules))...); err != nil {
		fmt.Fprintln(os.Stderr, err) // the test that needs it fails
	}
	world.Main(m)
}
