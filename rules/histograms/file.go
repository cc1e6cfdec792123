package histograms

import (
	"bytes"
	"fmt"
	"maps"
	"slices"

	"go.yaml.in/yaml/v3"
)

// own are alerts about histograms themselves, which have another expression where either kind will do.
var own = map[string]string{
	"HistogramsNotStored": `group by (cluster, job, instance) ({__name__=~"plumbline_query_duration_seconds_count|loadgen_response_seconds_count|ebpf_exporter_blkio_total_seconds_count"})
unless on (cluster, job, instance) {__name__=~"(plumbline_query_duration|loadgen_response|ebpf_exporter_blkio_total)_seconds(_bucket)?",le!="+Inf"}`,
}

// heads are the first comments of the files that are made.
var heads = map[Kind]string{
	Either:  "# Made from the file of this name in rules/. Each histogram is read as a native one, or else from its classic parts.",
	Classic: "# Made from the file of this name in rules/. Each histogram is read from its classic parts.",
}

// Files rewrites the files of a folder, by their names, for a kind of histograms.
func Files(kind Kind, written map[string][]byte) (map[string][]byte, error) {
	if heads[kind] == "" {
		return nil, fmt.Errorf("no kind of histograms %q: want %s or %s", kind, Either, Classic)
	}
	known := Of(kind, Exported...)
	made := map[string][]byte{}
	// Twice: a file may use what a later one records.
	for range 2 {
		for _, name := range slices.Sorted(maps.Keys(written)) {
			var err error
			if made[name], err = known.File(written[name], heads[kind]); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return made, nil
}

// File rewrites a file of rules: each expression reads that kind of histogram, and what records a histogram records the
// parts of a classic one. The files of a folder go in the order in which they use each other's records; what
// a file records is added to h.
func (h Histograms) File(text []byte, head string) ([]byte, error) {
	var file yaml.Node
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	groups := value(file.Content[0], "groups")
	if groups == nil {
		return nil, fmt.Errorf("no groups")
	}
	for _, group := range groups.Content {
		rules := value(group, "rules")
		if rules == nil {
			return nil, fmt.Errorf("line %d: a group without rules", group.Line)
		}
		var all []*yaml.Node
		for _, rule := range rules.Content {
			made, err := h.rule(rule)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", rule.Line, err)
			}
			all = append(all, made...)
		}
		rules.Content = all
	}
	file.HeadComment = head
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	if err := encoder.Encode(&file); err != nil {
		return nil, err
	}
	return out.Bytes(), encoder.Close()
}

// rule returns what takes a rule's place.
func (h Histograms) rule(rule *yaml.Node) ([]*yaml.Node, error) {
	expr, record, alert := value(rule, "expr"), value(rule, "record"), value(rule, "alert")
	if expr == nil {
		return nil, fmt.Errorf("a rule without an expression")
	}
	if alert != nil && own[alert.Value] != "" {
		return []*yaml.Node{rule}, h.set(expr, own[alert.Value])
	}
	is, err := h.IsHistogram(expr.Value)
	if err != nil {
		return nil, err
	}
	if !is {
		either, err := h.Expr(expr.Value)
		if err != nil {
			return nil, err
		}
		if either != expr.Value {
			err = h.set(expr, either)
		}
		return []*yaml.Node{rule}, err
	}
	if record == nil {
		return nil, fmt.Errorf("an alert of a histogram")
	}
	h.names[record.Value] = true
	var all []*yaml.Node
	if h.kind == Either {
		all = append(all, rule)
	}
	for _, part := range Parts {
		text, err := h.Part(expr.Value, part)
		if err != nil {
			return nil, err
		}
		one := clone(rule)
		value(one, "record").Value += part
		if len(all) > 0 {
			one.HeadComment = ""
		}
		if err := h.set(value(one, "expr"), text); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

// set gives a rule another expression, which must be PromQL.
func (h Histograms) set(node *yaml.Node, expr string) error {
	if _, err := parse(expr); err != nil {
		return err
	}
	node.Value, node.Style = expr, yaml.LiteralStyle
	return nil
}

// value is a mapping's value, or nil.
func value(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

func clone(n *yaml.Node) *yaml.Node {
	copied := *n
	copied.Content = nil
	for _, c := range n.Content {
		copied.Content = append(copied.Content, clone(c))
	}
	return &copied
}
