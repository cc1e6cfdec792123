package dashboards

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/rules/layers"
)

// ofPart are the names of a part's layers. Dashboards show a part that is not of the package as its layer is called.
func ofPart(p layers.Part) []string {
	return layers.Names(func(l layers.Layer) bool { return l.Part() == p })
}

// inParts adds the label part: the name of the part that the label layer of the rules belongs to.
func inParts(expr string) string {
	expr = fmt.Sprintf(`label_replace(%s, "part", "$1", "layer", "(.*)")`, expr)
	for _, p := range layers.Parts() {
		if names := ofPart(p); len(names) > 1 || names[0] != p.Name {
			expr = fmt.Sprintf(`label_replace(%s, "part", "%s", "layer", "%s")`, expr, p.Name, strings.Join(names, "|"))
		}
	}
	return expr
}

// direct reports whether a layer is a phase that nothing below divides.
func direct(l layers.Layer) bool { return l.Phase && l.Name != layers.Sync && l.Name != layers.Read }

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
	const recorded = `sum by (storageclass) (clamp_min(storageclass:query_layer_seconds:inferred5m{storageclass=~"$storageclass", layer%s"%s"}, 0))`
	one := func(chosen func(layers.Layer) bool) string { return strings.Join(layers.Names(chosen), "|") }
	var all []query
	for _, p := range layers.Parts() {
		of := func(l layers.Layer) bool { return l.Part() == p }
		apart := one(func(l layers.Layer) bool { return of(l) && direct(l) })
		below := fmt.Sprintf(recorded, "=~", one(of))
		if slices.Contains(ofPart(p), layers.Sync) {
			// What is of no other part is the volume's, a layer that is not known here, too.
			below = fmt.Sprintf(recorded, "!~", one(func(l layers.Layer) bool { return !of(l) || direct(l) }))
		} else if apart != "" {
			all = append(all, query{phase(apart), p.Name})
			continue
		}
		// Where no layers are recorded, all of it is the volume's.
		expr := phase("sync|read") + "\n* on (storageclass)\n  (" + below + "\n/ on (storageclass)\n  (" + fmt.Sprintf(recorded, "!~", one(direct)) + " > 0))"
		if apart != "" {
			expr = "(" + expr + ")\n+ on (storageclass)\n  " + phase(apart) + "\nor on (storageclass)\n  " + phase("sync|read|"+apart)
		}
		all = append(all, query{expr, p.Name})
	}
	// For a bar chart without any bar Grafana shows "No data in response" instead of the panel's own text, also when
	// everything is stalled. So a class whose servers complete nothing has a bar of length 0.
	all[0].expr += "\nor on (storageclass)\n  0 * group by (storageclass) (plumbline_volume_info{storageclass=~\"$storageclass\"})"
	return all
}

// ofClass gives servers' values the class of the volume that their data is on.
func ofClass(expr string) string {
	return expr + `
* on (node, server) group_left (storageclass)
  topk by (node, server) (1, max by (node, server, storageclass) (server:volume:info{storageclass=~"$storageclass"}))`
}

// The states of a suspect. What is stalled comes before what is slow, and the lowest layer before those above it. A
// layer that is not known here has a state of its own, so that it is not taken for none.
const noSuspect, suspectBeside, suspectOther, suspectLayer, stuckOther, stuckLayer = 0, 1, 9, 10, 100, 110

// ranked are the layers from what explains least: what nothing explains, then from the top.
var ranked = slices.Concat(layers.All[len(layers.All)-1:], layers.All[:len(layers.All)-1])

// suspectStates are all that suspect may be.
func suspectStates() []state {
	all := []state{{noSuspect, "none", sky}, {suspectOther, "another layer", text}, {stuckOther, "another layer stalled", vermillion}}
	for i, name := range layers.Besides {
		all = append(all, state{suspectBeside + i, name, text})
	}
	for i, l := range ranked {
		all = append(all, state{suspectLayer + i, l.Name, l.Part().Colour})
		if l.Stuck != "" {
			all = append(all, state{stuckLayer + i, l.Stuck, vermillion})
		}
	}
	return all
}

// suspect is the number of each class's suspect: the layer in which one of its volumes is stalled, else the rules'
// verdict; the lowest layer if nodes differ.
func suspect() string {
	var branches, stuck []string
	named := func(value int, matchers string) string {
		return fmt.Sprintf(`%d * group by (node, storageclass) (storageclass:suspect:info{storageclass=~"$storageclass"%s})`, value, matchers)
	}
	for i, l := range ranked {
		if l.Stuck != "" {
			stuck = append(stuck, fmt.Sprintf(`%d * group by (volume) (volume:stalled_seconds:max{layer="%s"})`, stuckLayer+i, l.Name))
		}
		branches = append(branches, named(suspectLayer+i, fmt.Sprintf(`, suspect="%s"`, l.Name)))
	}
	stuck = append(stuck, fmt.Sprintf(`%d * group by (volume) (volume:stalled_seconds:max)`, stuckOther))
	for i, name := range layers.Besides {
		branches = append(branches, named(suspectBeside+i, fmt.Sprintf(`, suspect="%s"`, name)))
	}
	branches = append(branches, named(suspectOther, ""))
	return `max by (storageclass) (
  (` + strings.Join(stuck, "\n  or ") + `)` + withClassOfStalled + `
)
or on (storageclass)
max by (storageclass) (
  ` + strings.Join(branches, "\n  or ") + `
)
or on (storageclass)
  0 * group by (storageclass) (plumbline_volume_info{storageclass=~"$storageclass"})`
}
