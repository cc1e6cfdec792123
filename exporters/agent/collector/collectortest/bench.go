package collectortest

import (
	"flag"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	// ResultsFolder is the flag --bench.results.
	ResultsFolder = flag.String("bench.results", filepath.Join(testkit.Root(), "build", "results"), "Where the benchmarks' rows go.")
	benchCommand  = flag.String("bench.command", "", "The command that the rows name as their origin, if not the benchmark's own.")
)

// Results is where a benchmark's rows go, made by this command.
func Results(b *testing.B, name, command string) *rows.File {
	if *benchCommand != "" {
		command = *benchCommand
	}
	file, err := rows.Open(*ResultsFolder, name, command)
	if err != nil {
		b.Fatal(err)
	}
	return file
}

// Exchange returns a benchmark of a byte sent and received on a unix socket by this process, which is not followed.
func Exchange(b *testing.B) func(*testing.B) {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		unix.Close(ends[0])
		unix.Close(ends[1])
	})
	one := make([]byte, 1)
	return func(b *testing.B) {
		for b.Loop() {
			if _, err := unix.Write(ends[0], one); err != nil {
				b.Fatal(err)
			}
			if _, err := unix.Read(ends[1], one); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// OneSided makes each end of an interval a bound that is passed in one case of twenty.
const OneSided = 0.1
