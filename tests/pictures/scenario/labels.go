package scenario

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// templates are the lab's series by metric, one for each set of label names.
type templates map[string][]map[string]string

// readTemplates reads a file of series, one a line.
func readTemplates(file string) (templates, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := templates{}
	for n, row := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		name, set, err := parseSeries(row)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, n+1, err)
		}
		all[name] = append(all[name], set)
	}
	return all, nil
}

// parseSeries divides METRIC{LABEL="VALUE", …} into its name and labels.
func parseSeries(text string) (string, map[string]string, error) {
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(text)
	if err != nil {
		return "", nil, fmt.Errorf("%s: %w", text, err)
	}
	name, set := "", map[string]string{}
	for _, m := range matchers {
		if m.Name == model.MetricNameLabel {
			name = m.Value
		} else {
			set[m.Name] = m.Value
		}
	}
	return name, set, nil
}

// find returns the template of a metric that has all of these labels, and most of their values.
func (t templates) find(name string, with map[string]string) (best map[string]string) {
	most := -1
	for _, set := range t[name] {
		same := 0
		for label, value := range with {
			switch own, ok := set[label]; {
			case !ok:
				same = -len(with) - 1
			case own == value:
				same++
			}
		}
		if same > most {
			best, most = set, same
		}
	}
	return best
}

// at are the labels of a template's series at a place: none if the place has no such series, one for each replica
// if it is of replicas.
func (p place) at(set map[string]string, all []place) []map[string]string {
	of, ok := template(set, all)
	if !ok {
		return nil
	}
	_, inBackend := set["backend"]
	_, info := set["persistentvolumeclaim"]
	if (inBackend && !info || set["job"] == "longhorn-exporter") && p.Replicas == 0 {
		return nil
	}
	ofReplica := set["volume"] != "" && (set["replica"] != "" || set["address"] != "")
	moved := map[string]string{}
	for name, value := range set {
		switch {
		case name == "device" && value == of.Device && !ofReplica:
			moved[name] = p.Device
		case name == "backend" && info:
			moved[name] = p.Backend
		default:
			moved[name] = strings.ReplaceAll(value, of.Class, p.Class)
		}
	}
	if !ofReplica {
		return []map[string]string{moved}
	}
	var each []map[string]string
	for i := range p.Replicas {
		one := maps.Clone(moved)
		for _, name := range []string{"replica", "address"} {
			switch value, ok := one[name]; {
			case !ok:
			case strings.Contains(value, ":"):
				one[name] = fmt.Sprintf("127.17.%d.%d:10000", slices.IndexFunc(all, func(o place) bool { return o.Class == p.Class })+1, i+1)
			default:
				one[name] = p.Class + "-replica-" + strconv.Itoa(i+1)
			}
		}
		each = append(each, one)
	}
	return each
}

// template is the place that a template's series was at; false if it was of the whole node.
func template(set map[string]string, all []place) (place, bool) {
	for _, p := range slices.Backward(all) {
		for _, name := range []string{"storageclass", "server", "volume", "persistentvolumeclaim"} {
			if strings.Contains(set[name], p.Class) {
				return p, true
			}
		}
		if set["device"] == p.Device && set["volume"] == "" {
			return p, true
		}
	}
	return place{}, false
}

// alternatives are all combinations of values that are divided by |.
func alternatives(set map[string]string) []map[string]string {
	all := []map[string]string{{}}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		var more []map[string]string
		for _, before := range all {
			for value := range strings.SplitSeq(set[name], "|") {
				one := maps.Clone(before)
				one[name] = value
				more = append(more, one)
			}
		}
		all = more
	}
	return all
}
