package why

import (
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/rules/layers"
)

// Who keeps a disk below the volume busy is named beside the replica on it, and first where a layer of storage grew: not
// where the network did, or the own load.
func TestNeighbour(t *testing.T) {
	for name, c := range map[string]struct {
		grown        string
		loadExplains bool
		neighbour    neighbour
		reason       Reason
		want, not    string
	}{
		"the device grew": {layers.Device, false, neighbour{"b", "nvme1n1", "pod", "backup/nightly", 0.71, 4.2}, Neighbour,
			"its disk nvme1n1 on b does 4.2 times its usual work; 71 % of its time is backup/nightly (pod)", ""},
		"the network grew":     {layers.Network, false, neighbour{"b", "nvme1n1", "pod", "backup/nightly", 0.71, 4.2}, Grown, "grew most", "backup"},
		"the own load grew":    {layers.Device, true, neighbour{"b", "nvme1n1", "pod", "backup/nightly", 0.71, 4.2}, Load, "more to do", "backup"},
		"the server's own pod": {layers.Device, false, neighbour{"b", "nvme1n1", "pod", "shop/db-1", 0.71, 4.2}, Grown, "grew most", "times its usual"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &Finding{At: time.Unix(1e9, 0), Window: 5 * time.Minute, Target: Target{Node: "b", Server: "shop/db-1", Engine: "postgresql", Class: "c", Volume: "v"},
				Commits: Statement{Count: 1000, Mean: 0.02, Phases: []Layer{{layers.Sync, 0.02}}}, grown: []string{c.grown}, loadExplains: c.loadExplains,
				neighbours: []neighbour{c.neighbour}}
			f.Statements = f.Commits
			if err := f.judge(t.Context()); err != nil {
				t.Fatal(err)
			}
			if v := f.Verdict; v.Reason != c.reason || !strings.Contains(v.Text, c.want) || c.not != "" && strings.Contains(v.Text, c.not) {
				t.Errorf("%s: %s", v.Reason, v.Text)
			}
		})
	}
}
