package dashboards

import (
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

// choice is a variable with the values of a label: several may be selected, at first all.
// "All" is the pattern .* , so that thousands of values make no long query.
func choice(name, label, query string) cog.Builder[dashboard.VariableModel] {
	return labelValues(name, query).Label(label).AllValue(".*")
}

// derived is a variable nobody sees: it follows from the visible ones. Its "All" is the list
// of its values, so that one claim's dashboard reads one claim's series.
func derived(name, query string) cog.Builder[dashboard.VariableModel] {
	return labelValues(name, query).Hide(dashboard.VariableHideHideVariable)
}

func labelValues(name, query string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).
		Query(dashboard.StringOrMap{String: &query}).
		Datasource(prometheusSource()).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortAlphabeticalAsc).
		Multi(true).IncludeAll(true).
		Current(dashboard.VariableOption{
			Selected: cog.ToPtr(true),
			Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
			Value:    dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
		})
}

func classVariable() cog.Builder[dashboard.VariableModel] {
	return choice("storageclass", "Storage class", `label_values(plumbline_volume_info, storageclass)`)
}

// volumeVariables select volumes by class, namespace and claim; volume, node and device follow.
func volumeVariables() []cog.Builder[dashboard.VariableModel] {
	return []cog.Builder[dashboard.VariableModel]{
		datasource(),
		classVariable(),
		choice("namespace", "Namespace", `label_values(plumbline_volume_info{storageclass=~"$storageclass"}, namespace)`),
		choice("pvc", "Volume claim", `label_values(plumbline_volume_info{storageclass=~"$storageclass", namespace=~"$namespace"}, persistentvolumeclaim)`),
		derived("volume", `label_values(plumbline_volume_info{`+ofVolume+`}, volume)`),
		derived("node", `label_values(plumbline_volume_info{volume=~"$volume"}, node)`),
		derived("device", `label_values(plumbline_volume_info{volume=~"$volume"}, device)`),
	}
}

// serverVariable selects the database servers whose data is on the selected volumes.
func serverVariable() cog.Builder[dashboard.VariableModel] {
	return labelValues("server", `label_values(server:volume:info{`+ofVolume+`}, server)`).Label("Server")
}
