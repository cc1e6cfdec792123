package baseline

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"
)

// ruleFile is a Prometheus rules file.
type ruleFile struct {
	Groups []group `yaml:"groups"`
}

type group struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Record string            `yaml:"record"`
	Expr   string            `yaml:"expr"`
	Labels map[string]string `yaml:"labels"`
}

// WriteRules writes the baselines as recording rules, each a constant, with the labels tool,
// profile and storageclass:
//
//	loadgen:baseline_response_seconds{quantile}  from the intended start
//	loadgen:baseline_service_seconds{quantile}   from sending
//	loadgen:baseline_transactions                how many it rests on
//	loadgen:baseline_target_rate                 transactions per second
//	loadgen:baseline_timestamp_seconds           when it was measured
func WriteRules(w io.Writer, baselines []Baseline, version string, at time.Time) error {
	var file ruleFile
	for _, b := range baselines {
		r := b.Result
		g := group{Name: "baseline-" + r.Profile + "-" + b.StorageClass}
		add := func(record string, value float64, quantile string) {
			labels := map[string]string{"tool": r.Tool, "profile": r.Profile, "storageclass": b.StorageClass}
			if quantile != "" {
				labels["quantile"] = quantile
			}
			g.Rules = append(g.Rules, rule{record, "vector(" + strconv.FormatFloat(value, 'g', 6, 64) + ")", labels})
		}
		for _, q := range r.Response.Quantiles {
			add("loadgen:baseline_response_seconds", q.Value, strconv.FormatFloat(q.Q, 'f', -1, 64))
		}
		for _, q := range r.Service.Quantiles {
			add("loadgen:baseline_service_seconds", q.Value, strconv.FormatFloat(q.Q, 'f', -1, 64))
		}
		add("loadgen:baseline_transactions", float64(r.Completed), "")
		add("loadgen:baseline_target_rate", r.TargetRate, "")
		g.Rules = append(g.Rules, rule{"loadgen:baseline_timestamp_seconds", fmt.Sprintf("vector(%d)", at.Unix()),
			map[string]string{"tool": r.Tool, "profile": r.Profile, "storageclass": b.StorageClass}})
		file.Groups = append(file.Groups, g)
	}
	fmt.Fprintf(w, "# Measured by `loadgen baseline` on %s; do not edit, measure again.\n", at.UTC().Format("2006-01-02 15:04 UTC"))
	fmt.Fprintf(w, "# %s\n", version)
	for _, b := range baselines {
		if b.Spoilt != "" {
			fmt.Fprintf(w, "# %s: SPOILT, and forced: %s\n", b.StorageClass, b.Spoilt)
		}
		q := b.Result.Response.Quantiles
		for _, x := range q {
			if x.Q == pinned {
				fmt.Fprintf(w, "# %s (%d replicas): %d transactions in %.0f s; p95 %.3f ms, with 95 %% confidence from %.3f to %.3f ms%s\n", b.StorageClass, b.Replicas,
					b.Result.Completed, b.Result.Seconds, x.Value*1000, x.Low*1000, x.High*1000, map[bool]string{false: ": NOT as precise as asked for"}[b.Precise])
			}
		}
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(file); err != nil {
		return err
	}
	return e.Close()
}
