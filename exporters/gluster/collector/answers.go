package collector

import (
	"bufio"
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// What `gluster --xml` answers, as seen of 10.3; only what is used.

type poolList struct {
	Peers []struct {
		UUID string `xml:"uuid"`
		// Host is localhost for the machine that was asked.
		Host string `xml:"hostname"`
	} `xml:"peerStatus>peer"`
}

// local is the identifier of the machine that was asked.
func (p poolList) local() string {
	for _, peer := range p.Peers {
		if peer.Host == "localhost" {
			return peer.UUID
		}
	}
	return ""
}

type volumeInfo struct {
	Volumes []struct {
		Name     string `xml:"name"`
		Status   string `xml:"statusStr"`
		Replicas int    `xml:"replicaCount"`
		Arbiters int    `xml:"arbiterCount"`
		Bricks   []struct {
			Name    string `xml:"name"`
			Host    string `xml:"hostUuid"`
			Arbiter int    `xml:"isArbiter"`
		} `xml:"bricks>brick"`
		Options []struct {
			Name  string `xml:"name"`
			Value string `xml:"value"`
		} `xml:"options>option"`
	} `xml:"volInfo>volumes>volume"`
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

// fop is one kind of file operation. Its latencies are nanoseconds.
type fop struct {
	Name string  `xml:"name"`
	Hits float64 `xml:"hits"`
	Mean float64 `xml:"avgLatency"`
}

// healCount reads what `volume heal V statistics heal-count` prints, which knows no XML: entries by
// brick. A brick that is not connected has none.
func healCount(text []byte) (map[string]float64, error) {
	entries := map[string]float64{}
	brick := ""
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := lines.Text()
		if name, ok := strings.CutPrefix(line, "Brick "); ok {
			brick = name
		}
		if count, ok := strings.CutPrefix(line, "Number of entries: "); ok {
			n, err := strconv.ParseFloat(count, 64)
			if err != nil || brick == "" {
				return nil, fmt.Errorf("cannot read the line %q", line)
			}
			entries[brick] = n
		}
	}
	if brick == "" {
		return nil, fmt.Errorf("names no brick: %s", firstLine(string(text)))
	}
	return entries, nil
}
