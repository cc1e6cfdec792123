package collector

import (
	"bufio"
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// What `gluster --xml` answers, as seen of 10.3; only what is used.

type poolList struct {
	Peers []struct {
		UUID string `xml:"uuid"`
		// Host is localhost for the machine that answers.
		Host string `xml:"hostname"`
	} `xml:"peerStatus>peer"`
}

// local returns the identifier of the machine that answers.
func (p poolList) local() string {
	for _, peer := range p.Peers {
		if peer.Host == "localhost" {
			return peer.UUID
		}
	}
	return ""
}

type volumeInfo struct {
	Volumes []listedVolume `xml:"volInfo>volumes>volume"`
}

type listedVolume struct {
	Name     string `xml:"name"`
	Status   string `xml:"statusStr"`
	Replicas int    `xml:"replicaCount"`
	Arbiters int    `xml:"arbiterCount"`
	// Disperse is how many bricks share the pieces of each file; 0 where each has whole files.
	Disperse int `xml:"disperseCount"`
	Bricks   []struct {
		Name    string `xml:"name"`
		Host    string `xml:"hostUuid"`
		Arbiter int    `xml:"isArbiter"`
	} `xml:"bricks>brick"`
	Options []struct {
		Name  string `xml:"name"`
		Value string `xml:"value"`
	} `xml:"options>option"`
}

// volumeName is what GlusterFS allows, without the names that its program would take for an option.
var volumeName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_-]{0,254}$`)

// check returns an error for impossible values of a volume.
func (v listedVolume) check() error {
	switch {
	case !volumeName.MatchString(v.Name):
		return fmt.Errorf("%q is no name of a volume", label.Value(v.Name))
	case v.Arbiters < 0 || v.Replicas < v.Arbiters || v.Replicas > maxBricks:
		return fmt.Errorf("%d replicas and %d arbiters", v.Replicas, v.Arbiters)
	case len(v.Bricks) > maxBricks:
		return fmt.Errorf("%d bricks, over %d", len(v.Bricks), maxBricks)
	}
	return nil
}

type volumeStatus struct {
	Volumes []struct {
		Name  string `xml:"volName"`
		Nodes []struct {
			Host   string `xml:"hostname"`
			Path   string `xml:"path"`
			Status int    `xml:"status"`
			Port   string `xml:"port"`
		} `xml:"node"`
	} `xml:"volStatus>volumes>volume"`
}

type volumeProfile struct {
	Bricks []struct {
		Name  string `xml:"brickName"`
		Total *stats `xml:"cumulativeStats"`
	} `xml:"volProfile>brick"`
}

// stats are a brick's since it started.
type stats struct {
	Read    float64 `xml:"totalRead"`
	Written float64 `xml:"totalWrite"`
	Fops    []fop   `xml:"fopStats>fop"`
}

// fop is one kind of file operation. The unit of its latencies depends on GlusterFS's version, see unit.
type fop struct {
	Name string  `xml:"name"`
	Hits float64 `xml:"hits"`
	Mean float64 `xml:"avgLatency"`
}

// fopName is how GlusterFS writes a kind of file operation.
var fopName = regexp.MustCompile(`^[A-Z_]{1,32}$`)

// check returns an error for impossible counts of a brick; a brick that does not answer has none.
func (s *stats) check() error {
	if s == nil {
		return nil
	}
	if len(s.Fops) > maxFops {
		return fmt.Errorf("%d kinds of file operations, over %d", len(s.Fops), maxFops)
	}
	// Written so that what is no number is not within.
	within := func(v, limit float64) bool { return v >= 0 && v <= limit }
	if !within(s.Read, maxCount) || !within(s.Written, maxCount) {
		return fmt.Errorf("%v bytes read, %v written", s.Read, s.Written)
	}
	for _, f := range s.Fops {
		if !fopName.MatchString(f.Name) || !within(f.Hits, maxCount) || !within(f.Mean, maxLatency) {
			return fmt.Errorf("%v times %q with a mean latency of %v", f.Hits, label.Value(f.Name), f.Mean)
		}
	}
	return nil
}

// healCount reads what `volume heal V statistics heal-count` prints, which knows no XML: entries by
// brick. A brick that is not connected has none.
func healCount(text []byte) (map[place]float64, error) {
	entries := map[place]float64{}
	brick := ""
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "Brick "); ok {
			brick = name
		}
		if count, ok := strings.CutPrefix(line, "Number of entries: "); ok {
			n, err := strconv.ParseUint(count, 10, 63)
			if err != nil || brick == "" {
				return nil, fmt.Errorf("cannot read the line %q", label.Value(line))
			}
			entries[placeOf(brick)] = float64(n)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if brick == "" {
		return nil, fmt.Errorf("names no brick: %s", firstLine(string(text)))
	}
	return entries, nil
}
