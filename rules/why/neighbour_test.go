package why

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// Who keeps a disk below the volume busy is named beside the replica on it, and first where a layer of storage grew: not
// where the network did, or the own load.
func TestNeighbour(t *testing.T) {
	for name, c := range map[string]struct {
		grown                      string
		loadExplains, hostExplains bool
		neighbour                  neighbour
		reason                     Reason
		want, not                  string
	}{
		"the device grew": {layers.Device, false, false, neighbour{"v", "b", "nvme1n1", "pod", "backup/nightly", 0.71, 4.2}, Neighbour,
			"its disk nvme1n1 on b does 4.2 times its usual work; 71 % of its time is backup/nightly (pod)", ""},
		"the network grew": {layers.Network, false, false, neighbour{"v", "b", "nvme1n1", "pod", "backup/nightly", 0.71, 4.2}, Grown, "grew most", "backup"},
		"nothing grew, and it syncs": {"", false, false, neighbour{"v", "b", "nvme1n1", "pod", "backup/nightly", 0.71, 4.2}, Largest,
			"; its disk nvme1n1 on b does 4.2 times its usual work; 71 % of its time is backup/nightly (pod)", ""},
		"the control got slower, too": {layers.Device, false, true, neighbour{"v", "b", "nvme1n1", "pod", "backup/nightly", 0.71, 4.2}, Neighbour,
			"its disk nvme1n1 on b does 4.2 times its usual work; 71 % of its time is backup/nightly (pod)", "not to blame"},
		"the control got slower, and no layer is known to": {"", false, true, neighbour{"v", "b", "nvme1n1", "pod", "backup/nightly", 0.71, 4.2}, Host,
			"it is the host; its disk nvme1n1 on b does 4.2 times its usual work; 71 % of its time is backup/nightly (pod)", "not to blame"},
		"the own load grew": {layers.Device, true, false, neighbour{"v", "b", "nvme1n1", "pod", "backup/nightly", 0.71, 4.2}, Load, "more to do", "backup"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Finding{At: time.Unix(1e9, 0), Window: 5 * time.Minute, Target: Target{Node: "b", Server: "shop/db-1", Engine: "postgresql", Class: "c", Volume: "v"},
				Commits: Statement{Count: 1000, Mean: 0.02, Phases: []Layer{{layers.Sync, 0.02}}}, loadExplains: c.loadExplains, hostExplains: c.hostExplains,
				neighbours: []neighbour{c.neighbour}}
			f.Statements = f.Commits
			if c.grown != "" {
				f.grown = []string{c.grown}
			}
			if err := f.judge(t.Context()); err != nil {
				t.Fatal(err)
			}
			if v := f.Verdict; v.Reason != c.reason || !strings.Contains(v.Text, c.want) || c.not != "" && strings.Contains(v.Text, c.not) {
				t.Errorf("%s: %s", v.Reason, v.Text)
			}
		})
	}
}

// A disk below the volume that does no more than a limit is named with what it does, unless storage is not to blame.
func TestDiskLimit(t *testing.T) {
	for name, c := range map[string]struct {
		explained bool
		limit     diskLimit
		want      string
	}{
		"requests":            {false, diskLimit{"v", "b", "sdc", "requests", 3000.4}, "; disk sdc on b does 3000 requests/s and no more, as under a limit"},
		"bytes":               {false, diskLimit{"v", "b", "sdc", "bytes", 125 << 20}, "; disk sdc on b does 125 MiB/s and no more, as under a limit"},
		"it is the host, too": {true, diskLimit{"v", "b", "sdc", "requests", 500}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Finding{At: time.Unix(1e9, 0), Window: 5 * time.Minute, Target: Target{Node: "b", Server: "shop/db-1", Engine: "postgresql", Class: "c", Volume: "v"},
				Commits: Statement{Count: 1000, Mean: 0.02, Phases: []Layer{{layers.Sync, 0.02}}}, grown: []string{layers.Device}, hostExplains: c.explained,
				limits: []diskLimit{c.limit}}
			f.Statements = f.Commits
			if err := f.judge(t.Context()); err != nil {
				t.Fatal(err)
			}
			if text := f.Verdict.Text; !strings.HasSuffix(text, c.want) || strings.Contains(text, "limit") != (c.want != "") {
				t.Errorf("%s: %s", f.Verdict.Reason, text)
			}
		})
	}
}

// Of a server with its log on a volume of its own, the neighbour is one of the volume that the grown layer is of, whatever
// the class of the log's.
func TestNeighbourOfLog(t *testing.T) {
	for name, c := range map[string]struct {
		layer      string
		read, sync float64 // seconds of a commit
		user       string  // "" if nobody is named
		busy       string  // whose disk has a neighbour, if not both
	}{
		"syncs":                                {layers.Device, 0.001, 0.02, "backup/of-log", ""},
		"reads for longer than it syncs":       {layers.Device, 0.02, 0.001, "backup/of-data", ""},
		"the read itself":                      {layers.Read, 0.001, 0.02, "backup/of-data", ""},
		"flushes, and the data's disk is busy": {layers.Flush, 0.02, 0.001, "", "data"},
		"reads, and the log's disk is busy":    {layers.Read, 0.02, 0.001, "", "log"},
	} {
		t.Run(name, func(t *testing.T) {
			l := whytest.Healthy()
			l.More = func(r *whytest.Recording) {
				const server = `server="split",node="n",db_system="postgresql"`
				r.Gauge(`server:volume:info{`+server+`,volume="v-data",storageclass="fast"}`, 1)
				r.Gauge(`server:sync_volume:info{`+server+`,volume="v-log"}`, 1)
				for _, v := range []string{"data", "log"} {
					class := map[string]string{"data": "fast", "log": "other"}[v]
					r.Gauge(fmt.Sprintf(`plumbline_volume_info{node="n",volume="v-%s",namespace="lab",persistentvolumeclaim="%s-split",storageclass=%q,device="dev-%s"}`, v, v, class, v), 1)
					if c.busy == "" || c.busy == v {
						r.Gauge(fmt.Sprintf(`volume:neighbour:share5m{volume="v-%s",node="n",device="dev-%s",kind="pod",user="backup/of-%s"}`, v, v, v), 0.7)
					}
				}
				r.Counter(`plumbline_query_phase_seconds_total{`+server+`,command="commit",phase="read"}`, 40*c.read)
				r.Counter(`plumbline_query_phase_seconds_total{`+server+`,command="commit",phase="sync"}`, 40*c.sync)
				r.Times(`plumbline_query_duration_seconds{`+server+`,command="commit"}`, 40, c.read+c.sync)
				r.Gauge(fmt.Sprintf(`storageclass:grown_layer:info{node="n",storageclass="fast",layer=%q}`, c.layer), 1)
			}
			f := find(t, l, Subject{Server: "split"})
			want := Neighbour
			if c.user == "" {
				want = Grown
			}
			if v := f.Verdict; v.Reason != want || v.User != c.user || !strings.Contains(v.Text, c.user) || f.Target.Volume != "v-log" || f.Target.Class != "other" {
				t.Errorf("%s of %s: %s", v.Reason, v.User, v.Text)
			}
		})
	}
}

// Where it is not known what grew, the neighbour on the disk of a replica that is fast is not named.
func TestNeighbourOfFastReplica(t *testing.T) {
	for node, named := range map[string]bool{"n-a": true, "n-b": false} {
		t.Run(node, func(t *testing.T) {
			f := &Finding{At: time.Unix(1e9, 0), Window: 5 * time.Minute, Target: Target{Node: "n", Server: "shop/db-1", Engine: "postgresql", Class: "c", Volume: "v"},
				Commits:    Statement{Count: 1000, Mean: 0.02, Phases: []Layer{{layers.Sync, 0.02}}},
				neighbours: []neighbour{{"v", node, "sda", "pod", "backup/nightly", 0.71, 4.2}}}
			f.Statements = f.Commits
			for name, s := range map[string]float64{"r-a": 0.020, "r-b": 0.007, "r-c": 0.018} {
				f.Replicas = append(f.Replicas, Replica{Name: name, Node: "n-" + name[2:], Device: "sda", RoundTrip: s, Service: s, Disk: s, Stopped: math.NaN(), Unread: math.NaN()})
			}
			if err := f.judge(t.Context()); err != nil {
				t.Fatal(err)
			}
			if v := f.Verdict; v.Reason != Largest || strings.Contains(v.Text, "backup") != named {
				t.Errorf("%s: %s", v.Reason, v.Text)
			}
		})
	}
}
