package dashboards

import (
	"fmt"
	"slices"
	"strings"
)

// part is a part of a statement's time as the overview and Query to disk show it, and the layers
// of the rules that make it up.
type part struct {
	name   string
	layers []string
}

// statementParts go from the client to the replica's disk. A phase whose layers are not known is
// the volume's, as is what its layers do not explain.
var statementParts = []part{
	{"client", []string{"client"}},
	{"cpu", []string{"cpu"}},
	{"runqueue", []string{"runqueue"}},
	{"wait", []string{"wait"}},
	{"volume", []string{"write", "queue", "device", "flush", "rest", "sync", "read"}},
	{"engine", []string{"engine"}},
	{"network", []string{"path", "network"}},
	{"replica", []string{"replica"}},
	{"replica's disk", []string{"disk"}},
}

// inParts adds the label part: the name of the part that the label layer of the rules belongs to.
func inParts(expr string) string {
	expr = fmt.Sprintf(`label_replace(%s, "part", "$1", "layer", "(.*)")`, expr)
	for _, p := range statementParts {
		if len(p.layers) > 1 || p.layers[0] != p.name {
			expr = fmt.Sprintf(`label_replace(%s, "part", "%s", "layer", "%s")`, expr, p.name, strings.Join(p.layers, "|"))
		}
	}
	return expr
}

// storageLayers are those that a statement's syncs and reads are split into.
const storageLayers = "queue|device|flush|rest|sync|read|path|engine|network|replica|disk"

// statementBars are the parts of a class's statements now. How long the statements take is
// measured over the last two minutes; of that, how sync and read divide into the layers below is
// as in the recorded means, which are over five.
func statementBars() []query {
	phase := func(which string) string {
		return fmt.Sprintf(`(
  sum by (storageclass) (%s)
/ on (storageclass)
  (sum by (storageclass) (%s) > 0)
)`, ofClass(`sum by (node, server) (rate(plumbline_query_phase_seconds_total{phase=~"`+which+`"}[`+nowWindow+`]))`),
			ofClass(`histogram_count(sum by (node, server) (rate(plumbline_query_duration_seconds[`+nowWindow+`])))`))
	}
	const recorded = `sum by (storageclass) (clamp_min(storageclass:query_layer_seconds:inferred5m{storageclass=~"$storageclass", layer=~"%s"}, 0))`
	var all []query
	for _, p := range statementParts {
		var below, direct []string
		for _, l := range p.layers {
			if strings.Contains("|"+storageLayers+"|", "|"+l+"|") {
				below = append(below, l)
			} else {
				direct = append(direct, l)
			}
		}
		var terms []string
		if len(below) > 0 {
			// Where no layers are recorded, all of it is the volume's.
			split := fmt.Sprintf(recorded, strings.Join(below, "|")) + "\n/ on (storageclass)\n  (" + fmt.Sprintf(recorded, storageLayers) + " > 0)"
			terms = append(terms, phase("sync|read")+"\n* on (storageclass)\n  ("+split+")")
		}
		if len(direct) > 0 {
			terms = append(terms, phase(strings.Join(direct, "|")))
		}
		if len(terms) == 2 {
			terms = []string{"(" + terms[0] + ")\n+ on (storageclass)\n  " + terms[1] + "\nor on (storageclass)\n  " + phase("sync|read|"+strings.Join(direct, "|"))}
		}
		all = append(all, query{terms[0], p.name})
	}
	// Of a bar chart without any bar Grafana says "No data in response", whatever its text for nothing is, and that
	// where all stands still. So a class whose servers complete nothing has a bar of no length.
	all[0].expr += "\nor on (storageclass)\n  0 * group by (storageclass) (plumbline_volume_info{storageclass=~\"$storageclass\"})"
	return all
}

// ofClass gives servers' values the class of the volume that their data is on.
func ofClass(expr string) string {
	return expr + `
* on (node, server) group_left (storageclass)
  topk by (node, server) (1, max by (node, server, storageclass) (server:volume:info{storageclass=~"$storageclass"}))`
}

// suspects are what the rules may suspect, by the numbers of their states, from the load to the
// lowest layer.
var suspects = []state{
	{0, "none", sky},
	{1, "load", text}, {2, "client", text}, {3, "cpu", sky}, {4, "runqueue", yellow}, {5, "wait", purple},
	{6, "write", blue}, {7, "read", blue}, {8, "sync", blue}, {9, "rest", blue}, {10, "queue", blue}, {11, "device", blue}, {12, "flush", blue},
	{13, "path", orange}, {14, "engine", green}, {15, "network", orange}, {16, "replica", grey}, {17, "disk", vermillion},
}

// stuckLayers are the layers that a volume may stand still in, by the numbers of their states: above those of
// the suspects, as a layer that answers nothing comes before one that is slow.
var stuckLayers = []struct {
	state
	layer string
}{
	{state{21, "host stuck", vermillion}, "host"},
	{state{22, "device stuck", vermillion}, "device"},
	{state{23, "host disk stuck", vermillion}, "host-disk"},
	{state{24, "engine stuck", vermillion}, "engine"},
	{state{25, "network stuck", vermillion}, "network"},
	{state{26, "replica stuck", vermillion}, "replica"},
	{state{27, "disk stuck", vermillion}, "replica-disk"},
}

// suspectStates are all that suspect may be.
func suspectStates() []state {
	all := slices.Clone(suspects)
	for _, s := range stuckLayers {
		all = append(all, s.state)
	}
	return all
}

// suspect is the number of each class's suspect: the layer in which a volume of it stands still, else the layer
// that grew most, the lowest if volumes or nodes differ. There is always a layer that grew most, however little:
// it is a suspect only once the statements take half as long again as in the day's good times.
func suspect() string {
	var branches, stuck []string
	for _, s := range stuckLayers {
		stuck = append(stuck, fmt.Sprintf(`%d * group by (volume) (volume:stalled_seconds:max{layer="%s"})`, s.value, s.layer))
	}
	for _, s := range suspects[1:] {
		branches = append(branches, fmt.Sprintf(`%d * group by (node, storageclass) (storageclass:suspect:info{storageclass=~"$storageclass", suspect="%s"})`, s.value, s.name))
	}
	const grown = `sum by (node, storageclass) (storageclass:query_layer_growth_seconds:inferred5m{storageclass=~"$storageclass"})`
	const taken = `sum by (node, storageclass) (storageclass:query_layer_seconds:inferred5m{storageclass=~"$storageclass"})`
	return `max by (storageclass) (
  (` + strings.Join(stuck, "\n  or ") + `)` + withClassOfStalled + `
)
or on (storageclass)
max by (storageclass) (
  (` + strings.Join(branches, "\n  or ") + `)
and on (node, storageclass)
  (` + grown + ` > on (node, storageclass) 0.33 * ` + taken + `)
)
or on (storageclass)
  0 * group by (storageclass) (plumbline_volume_info{storageclass=~"$storageclass"})`
}
