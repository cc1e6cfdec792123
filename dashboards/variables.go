package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// ofVolume selects, by the visible variables, series that carry a volume's labels.
const ofVolume = `storageclass=~"$storageclass", namespace=~"$namespace", persistentvolumeclaim=~"$pvc"`

// ofMany selects, by the visible variables, what is recorded of whole classes of many volumes. No series has the label
// "chosen", and nothing chosen is the pattern .* , which nothing matches: so where a namespace or a claim is chosen, no
// series is selected.
const ofMany = `storageclass=~"$storageclass", chosen=~"$namespace$pvc"`

// ofManyServers is the same for what is recorded of servers, one of which may be chosen, too.
const ofManyServers = `storageclass=~"$storageclass", chosen=~"$namespace$pvc$server"`

// withMany adds to series of the listed volumes those of the whole classes without a listed volume.
func withMany(expr, recorded, matchers string) string {
	return expr + "\n  or " + recorded + "{" + matchers + "}"
}

// classesWith does the same with what is recorded of every class: only of those without a listed volume.
func classesWith(expr, recorded, matchers string) string {
	return withMany(expr, recorded, matchers) + ` and on (storageclass) storageclass:many_volumes:count`
}

// withClasses is classesWith of volumes.
func withClasses(expr, recorded string) string { return classesWith(expr, recorded, ofMany) }

// prometheusSource is the data source that the dashboard's first variable selects.
func prometheusSource() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

func datasource() cog.Builder[dashboard.VariableModel] {
	return dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")
}

// allVariables are the page's variables with that of the cluster behind the data source. All
// others' values are those of the chosen clusters.
func (p page) allVariables(o Options) ([]cog.Builder[dashboard.VariableModel], error) {
	label := o.clusterLabel()
	all := []cog.Builder[dashboard.VariableModel]{
		datasource(),
		choice("cluster", "Cluster", fmt.Sprintf(`label_values(plumbline_volume_info, %s)`, label)).builder(),
	}
	for _, v := range p.variables {
		m := labelValuesForm.FindStringSubmatch(v.query)
		if m == nil {
			return nil, fmt.Errorf("variable %s: %q is not label_values(series, label)", v.name, v.query)
		}
		series, _, err := perCluster(m[1], o)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.name, err)
		}
		v.query = fmt.Sprintf("label_values(%s, %s)", series, m[2])
		all = append(all, v.builder())
	}
	return all, nil
}

// variable is a choice of a label's values.
type variable struct {
	name, label, query string
	// pattern is whether "All" is the pattern .* instead of the list of all values.
	pattern, hidden bool
}

// choice is a variable with the values of a label: several may be selected, at first all.
// "All" is the pattern .* , so that thousands of values make no long query.
func choice(name, label, query string) variable { return variable{name, label, query, true, false} }

// derived is a hidden variable: it follows from the visible ones. Its "All" is the list of its values, so that one
// claim's dashboard reads one claim's series.
func derived(name, query string) variable { return variable{name, name, query, false, true} }

// listed has a label's values of all series that matchers select, once one of the visible variables is chosen; before,
// only of those that the rules list: a list of thousands of names takes Prometheus a second for each selector, and of
// names of thousands more its limit of a query's size.
//
// A variable's query has nothing but matchers. The second one drops info's series as long as nothing is chosen: its
// pattern is then the metric's name and .* , and afterwards the name and what no name ends with.
func listed(name, info, list, chosen, matchers, label string) variable {
	return derived(name, fmt.Sprintf(`label_values({__name__=~"%[1]s|%[2]s", __name__!~"%[1]s%[3]s", %[4]s}, %[5]s)`, info, list, chosen, matchers, label))
}

// ofListed are labels of the volumes that are chosen or listed.
func ofListed(label string) variable {
	return listed(label, "plumbline_volume_info", "volume:listed:info", "$namespace$pvc", ofVolume, label)
}

func (v variable) builder() cog.Builder[dashboard.VariableModel] {
	b := dashboard.NewQueryVariableBuilder(v.name).
		Query(dashboard.StringOrMap{String: &v.query}).
		Datasource(prometheusSource()).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).IncludeAll(true).
		Current(dashboard.VariableOption{
			Selected: cog.ToPtr(true),
			Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value:    dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
		})
	if v.pattern {
		b.AllValue(".*")
	}
	if v.hidden {
		return b.Hide(dashboard.VariableHideHideVariable)
	}
	return b.Label(v.label)
}

func classVariable() variable {
	return choice("storageclass", "Storage class", `label_values(plumbline_volume_info, storageclass)`)
}

// volumeVariables select volumes by class, namespace and claim; volume, node and device follow.
func volumeVariables() []variable {
	return []variable{
		classVariable(),
		choice("namespace", "Namespace", `label_values(plumbline_volume_info{storageclass=~"$storageclass"}, namespace)`),
		choice("pvc", "Volume claim", `label_values(plumbline_volume_info{storageclass=~"$storageclass", namespace=~"$namespace"}, persistentvolumeclaim)`),
		ofListed("volume"), ofListed("node"), ofListed("device"),
	}
}

// serverVariables select the database servers whose data is on the selected volumes; listed_server follows.
func serverVariables() []variable {
	return []variable{
		choice("server", "Server", `label_values(server:volume:info{`+ofVolume+`}, server)`),
		listed("listed_server", "server:volume:info", "server:listed:info", "$namespace$pvc$server", ofVolume+`, server=~"$server"`, "server"),
	}
}
