package scenario

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	// runbookQuery is a query of a runbook, and filledIn what its reader fills in.
	runbookQuery = regexp.MustCompile("(?s)```promql\n(.*?)```")
	filledIn     = regexp.MustCompile(`="(CLASS|VOLUME|NODE|SERVER|DEVICE|REPLICA|CLAIM|POOL)"`)
)

// notInLab are metrics that no lab has, and why.
var notInLab = map[string]string{
	"plumbline_disk_user_seconds_total":          "newer than the series of the lab that scenarios are made of",
	"disk:requests:rate5m":                       "newer than the series of the lab that scenarios are made of",
	"disk:bytes:rate5m":                          "newer than the series of the lab that scenarios are made of",
	"plumbline_kubernetes_errors_total":          "only with a Kubernetes API",
	"plumbline_kubernetes_synced":                "only with a Kubernetes API",
	"kubelet_volume_stats_available_bytes":       "only with a kubelet",
	"plumbline_longhorn_volume_replicas":         "only with Longhorn's manager",
	"plumbline_kubernetes_left_out_total":        "only with a Kubernetes API",
	"pool:used:ratio":                            "only with pools or Longhorn's disks",
	"pool:used_of:ratio":                         "only with pools or Longhorn's disks",
	"volume:degraded:bool":                       "by pool only with Ceph",
	"ceph_pg_recovering":                         "only with Ceph",
	"ceph:osd_write_seconds:mean5m":              "only with Ceph",
	"replica:rebuild_progress:ratio":             "only while a replica is rebuilt",
	"plumbline_volume_path_oldest_seconds":       "only over NVMe/TCP",
	"plumbline_volume_path_state":                "only over NVMe/TCP",
	"plumbline_volume_path_errors_total":         "only over NVMe/TCP",
	"plumbline_openebs_pool_state":               "only with OpenEBS",
	"plumbline_openebs_node_state":               "only with OpenEBS",
	"loadgen_errors_total":                       "only once a transaction has failed",
	"plumbline_volume_path_down_seconds":         "only over NVMe/TCP",
	"plumbline_volume_target_oldest_seconds":     "only of targets in user space",
	"plumbline_replica_request_unanswered_total": "only once a connection has ended",
	"disk:slowdown:ratio":                        "only with peers, after hours",
	"peers:disk_time_by_load:slope6h":            "only with peers, after hours",
	"loadgen_response_seconds_count":             "only where histograms are classic ones",
	"ebpf_exporter_blkio_total_seconds_bucket":   "only where histograms are classic ones",
	"ebpf_exporter_blkio_retries_total":          "only once a disk's request has been tried again",
	"kube_deployment_status_replicas_available":  "only with kube-state-metrics",
	"plumbline_longhorn_volume_condition":        "only where Longhorn runs on Kubernetes",
	"plumbline_volume_target_errors_total":       "only of targets in user space",
}

// The runbooks' queries have an answer in one of the scenarios, with whatever place of the lab is filled in. For a query
// with a comparison, it is enough that there is something to compare.
func TestRunbooksQueriesAnswer(t *testing.T) {
	t.Parallel()
	testkit.Long(t, "evaluates all rules over a scenario")
	var all sync.WaitGroup
	for _, scenario := range Names() {
		all.Go(func() { evaluated[scenario]() })
	}
	all.Wait()
	files, err := filepath.Glob(filepath.Join(testkit.Root(), "rules", "runbooks", "*.md"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no runbooks: %v", err)
	}
	answered, without := 0, map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range runbookQuery.FindAllStringSubmatch(string(text), -1) {
			query, named := relaxed(t, filledIn.ReplaceAllString(found[1], `=~".+"`))
			somewhere := slices.ContainsFunc(Names(), func(scenario string) bool { return len(instant(t, scenario, query)) > 0 })
			excused := slices.IndexFunc(named, func(metric string) bool { return notInLab[metric] != "" })
			switch {
			case somewhere:
				answered++
			case excused >= 0:
				without[named[excused]] = true
			default:
				t.Errorf("%s: in no scenario there is an answer to\n%s", filepath.Base(file), found[1])
			}
		}
	}
	for metric := range notInLab {
		if !without[metric] {
			t.Errorf("%s need not be excused", metric)
		}
	}
	if answered < 90 {
		t.Errorf("only %d queries were answered", answered)
	}
}

// relaxed makes an expression's comparisons give 0 or 1 instead of leaving series out, and keeps of "unless" what
// comes before it. It also returns the metrics named.
func relaxed(t *testing.T, query string) (text string, metrics []string) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	if b, ok := expr.(*parser.BinaryExpr); ok && b.Op == parser.LUNLESS {
		expr = b.LHS
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.BinaryExpr:
			n.ReturnBool = n.ReturnBool || n.Op.IsComparisonOperator()
		case *parser.VectorSelector:
			metrics = append(metrics, n.Name)
		}
		return nil
	})
	return expr.String(), metrics
}
