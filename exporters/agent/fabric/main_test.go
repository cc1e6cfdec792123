package fabric

import (
	"testing"

	"github.com/plumbline/plumbline/tests/world"
)

func TestMain(m *testing.M) { world.Main(m) }
