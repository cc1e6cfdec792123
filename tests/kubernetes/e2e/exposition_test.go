//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"
)

// ours are the metrics that rules and dashboards may query, whatever exports them.
var ours = regexp.MustCompile(`^(plumbline_|ebpf_exporter_|loadgen_|node_(boot_time|disk|time|timex|filesystem|pressure)|cnpg_|mysql_|pg_|kubelet_volume_|container_(fs|pressure)_|up$|scrape_|prometheus_(rule|tsdb)_|longhorn_|openebs_|process_)`)

// saveExposition writes what Prometheus stored of every exporter, labels as stored: for each
// metric one series of each set of label names. tests/contract checks the rules' labels against
// tests/contract/testdata/cluster/series.txt, which is a copy of it.
func (n *node) saveExposition() {
	n.t.Helper()
	var all []map[string]string
	n.must(n.api("series?match[]="+url.QueryEscape(`{__name__=~".+"}`)+fmt.Sprintf("&start=%d", time.Now().Add(-2*time.Minute).Unix()), &all))
	samples := map[string]string{}
	for _, s := range all {
		if !ours.MatchString(s["__name__"]) || strings.Contains(s["__name__"], ":") {
			continue
		}
		names := slices.Sorted(maps.Keys(s))
		var labels []string
		for _, name := range names {
			if name != "__name__" {
				labels = append(labels, fmt.Sprintf("%s=%q", name, s[name]))
			}
		}
		line := s["__name__"] + "{" + strings.Join(labels, ",") + "}"
		// The first one by its text, so that two runs differ by little.
		key := s["__name__"] + " " + strings.Join(names, ",")
		if known, ok := samples[key]; !ok || line < known {
			samples[key] = line
		}
	}
	if len(samples) < 200 {
		n.t.Errorf("only %d kinds of series are stored", len(samples))
	}
	n.report("series.txt", strings.Join(slices.Sorted(maps.Values(samples)), "\n")+"\n")
}
