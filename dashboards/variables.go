package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// ofVolume selects, by the visible variables, series that carry a volume's labels.
const ofVolume = `storageclass=~"$storageclass", namespace=~"$namespace", persistentvolumeclaim=~"$pvc"`

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

// derived is a variable nobody sees: it follows from the visible ones. Its "All" is the list
// of its values, so that one claim's dashboard reads one claim's series.
func derived(name, query string) variable { return variable{name, name, query, false, true} }

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
		derived("volume", `label_values(plumbline_volume_info{`+ofVolume+`}, volume)`),
		derived("node", `label_values(plumbline_volume_info{volume=~"$volume"}, node)`),
		derived("device", `label_values(plumbline_volume_info{volume=~"$volume"}, device)`),
	}
}

// serverVariable selects the database servers whose data is on the selected volumes.
func serverVariable() variable {
	return variable{name: "server", label: "Server", query: `label_values(server:volume:info{` + ofVolume + `}, server)`}
}
