package baseline

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// RulesVersion is the version of the alerts' rules that pins are made for. It is raised when a
// pin would mean something else to them: another profile under the old name, another quantile. The
// rules refuse pins of other versions (label rules), and the alert BaselineRefused fires.
const RulesVersion = "2"

// LeastRate is the lowest rate of a canary, per second, at which the rules ever have as many transactions as they judge by:
// 50 in half an hour.
const LeastRate = 50.0 / 1800

// ruleFile is a Prometheus rules file.
type ruleFile struct {
	Groups []group `yaml:"groups" json:"groups"`
}

type group struct {
	Name  string `yaml:"name" json:"name"`
	Rules []rule `yaml:"rules" json:"rules"`
}

type rule struct {
	Record string            `yaml:"record" json:"record"`
	Expr   string            `yaml:"expr" json:"expr"`
	Labels map[string]string `yaml:"labels" json:"labels"`
}

const responseSeconds = "loadgen:baseline_response_seconds"

// pins returns the baselines as recording rules, each a constant, with the labels tool, profile,
// storageclass, database and cluster (if they are known) and rules (RulesVersion):
//
//	loadgen:baseline_response_seconds{quantile}  from the intended start
//	loadgen:baseline_service_seconds{quantile}   from sending
//	loadgen:baseline_transactions                how many it rests on
//	loadgen:baseline_target_rate                 transactions per second
//	loadgen:baseline_timestamp_seconds           when it was measured
//	loadgen:baseline_hour:ratio{stat}            of a run of six hours or more: how many times as slow
//	                                             as the whole its slowest hour was (stat="max"), and
//	                                             the standard deviation of what an hour has in common
//	                                             with the next (stat="slow")
//	loadgen:expected_slow:ratio{window}          there only while an expected window is open: how many
//	                                             times the pinned p95 is no surprise then
func pins(baselines []Baseline, at time.Time) ruleFile {
	var file ruleFile
	for _, b := range baselines {
		r := b.Result
		g := group{Name: "baseline " + r.Profile + " " + word(b.StorageClass)}
		if b.Database != "" {
			g.Name += " " + word(b.Database)
		}
		// more is a further label and its value, if it is not empty.
		add := func(record, expr, more, moreValue string) {
			labels := map[string]string{"tool": r.Tool, "profile": r.Profile, "storageclass": b.StorageClass, "rules": RulesVersion}
			for name, value := range map[string]string{"database": b.Database, "cluster": b.Cluster, more: moreValue} {
				if value != "" {
					labels[name] = value
				}
			}
			g.Rules = append(g.Rules, rule{record, expr, labels})
		}
		number := func(v float64) string { return "vector(" + strconv.FormatFloat(v, 'g', 6, 64) + ")" }
		for _, q := range r.Response.Quantiles {
			add(responseSeconds, number(q.Value), "quantile", strconv.FormatFloat(q.Q, 'f', -1, 64))
		}
		for _, q := range r.Service.Quantiles {
			add("loadgen:baseline_service_seconds", number(q.Value), "quantile", strconv.FormatFloat(q.Q, 'f', -1, 64))
		}
		add("loadgen:baseline_transactions", number(float64(r.Completed)), "", "")
		add("loadgen:baseline_target_rate", number(r.TargetRate), "", "")
		add("loadgen:baseline_timestamp_seconds", fmt.Sprintf("vector(%d)", at.Unix()), "", "")
		if b.Hours != nil {
			add("loadgen:baseline_hour:ratio", number(b.Hours.Max), "stat", "max")
			add("loadgen:baseline_hour:ratio", number(b.Hours.Slow), "stat", "slow")
		}
		for _, w := range b.Expected {
			add("loadgen:expected_slow:ratio", w.Expr(), "window", w.Name+" "+w.Times())
		}
		file.Groups = append(file.Groups, g)
	}
	return file
}

// word is a name as one word of a group's name: Prometheus refuses a file in which two groups have the same.
func word(name string) string {
	if strings.ContainsAny(name, ` "`) {
		return strconv.Quote(name)
	}
	return name
}

// summary describes in a line or two for each baseline what it rests on.
func summary(baselines []Baseline, version string, at time.Time) []string {
	lines := []string{fmt.Sprintf("Measured by `loadgen baseline` on %s; do not edit, measure again.", at.UTC().Format("2006-01-02 15:04 UTC")), version}
	for _, b := range baselines {
		if b.Spoilt != "" {
			lines = append(lines, fmt.Sprintf("%s: SPOILT, and forced: %s", b.name(), b.Spoilt))
		}
		for _, x := range b.Result.Response.Quantiles {
			if x.Q == pinned {
				lines = append(lines, fmt.Sprintf("%s%s: %d transactions in %.0f s; p95 %.3f ms, with 95 %% confidence from %.3f to %.3f ms%s", b.name(), replicas(b.Replicas),
					b.Result.Completed, b.Result.Seconds, x.Value*1000, x.Low*1000, x.High*1000, map[bool]string{false: ": NOT as precise as required"}[b.Precise]))
			}
		}
		if b.Hours == nil {
			lines = append(lines, b.name()+": too short to compare hours, which takes six of them")
		} else {
			lines = append(lines, fmt.Sprintf("%s: the slowest hour was %.2f times the whole; hours wander by %.2f, one standard deviation", b.name(), b.Hours.Max, b.Hours.Slow))
		}
	}
	return lines
}

// replicas is a class's number of copies; 0 is not known.
func replicas(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d replicas)", n)
}

// WriteRules writes the baselines as a rules file, with what they rest on in its comments.
func WriteRules(w io.Writer, baselines []Baseline, version string, at time.Time) error {
	for _, line := range summary(baselines, version, at) {
		fmt.Fprintf(w, "# %s\n", line)
	}
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(pins(baselines, at)); err != nil {
		return err
	}
	return e.Close()
}
