package collector

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
)

// release is the beginning of what `gluster --version` prints, as "glusterfs 10.3"; what was built between two releases
// has no such number.
var release = regexp.MustCompile(`^glusterfs (\d{1,3})\.\d`)

// nanosecondsSince is the release from which on latencies are nanoseconds (GlusterFS's pull request 1833); before it
// they were microseconds.
const nanosecondsSince = 9

// unit is how many of the latencies' units make a second, by the version of the program, which is taken for the
// bricks'; 0 if it is not known.
func (g *Gluster) unit(ctx context.Context) float64 {
	out, err := g.o.CLI.call(ctx, "--version")
	ticks := 0.0
	if err == nil {
		ticks, err = unitOf(string(out))
	}
	if err != nil {
		_ = g.failed(ctx, commandVersion, "", err)
	}
	return ticks
}

// unitOf is unit for what the program prints.
func unitOf(text string) (float64, error) {
	found := release.FindStringSubmatch(text)
	if found == nil {
		return 0, fmt.Errorf("no version that is known, so that latencies are left out: %s", firstLine(text))
	}
	major, err := strconv.Atoi(found[1])
	switch {
	case err != nil:
		return 0, err
	case major < nanosecondsSince:
		return 1e6, nil
	}
	return 1e9, nil
}
