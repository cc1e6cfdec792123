package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// pageLinks is the menu in a dashboard's head: all of Plumbline's, with variables and time kept.
func pageLinks() []cog.Builder[dashboard.DashboardLink] {
	return []cog.Builder[dashboard.DashboardLink]{
		dashboard.NewDashboardLinkBuilder("Plumbline").
			Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{tag}).
			AsDropdown(true).KeepTime(true).IncludeVars(true),
	}
}

// link is a link from a cell or a series to another dashboard. It sets the other's variables
// from the cell's row or the series' labels, and keeps the data source and the time.
type link struct {
	title, uid string
	// set maps a variable of the other dashboard to the label or column it is set from.
	set [][2]string
}

// The drill-downs: from a class to its volumes, from a volume or server to its parts.
var (
	classToQuery  = link{"Query to disk", "plumbline-query-to-disk", [][2]string{{"storageclass", "storageclass"}}}
	volumeToQuery = link{"Query to disk", "plumbline-query-to-disk", [][2]string{
		{"storageclass", "storageclass"}, {"namespace", "namespace"}, {"pvc", "persistentvolumeclaim"}}}
	volumeToReplicas = link{"Replicas", "plumbline-replicas", [][2]string{
		{"storageclass", "storageclass"}, {"namespace", "namespace"}, {"pvc", "persistentvolumeclaim"}}}
	serverToDatabase = link{"Databases", "plumbline-databases", [][2]string{{"server", "server"}}}
)

// url writes the link's address; source is what Grafana calls the place of the values:
// __data.fields in a table, __field.labels in a graph, nothing for variables.
func (l link) url(source string) string {
	u := "/d/" + l.uid + "?${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}"
	for _, s := range l.set {
		if source == "" { // the panel is there once for each value of the variable
			u += "&var-" + s[0] + "=${" + s[1] + "}"
			continue
		}
		u += "&var-" + s[0] + "=${" + source + "." + s[1] + "}"
	}
	return u
}

func (l link) builder(source string) cog.Builder[dashboard.DashboardLink] {
	return dashboard.NewDashboardLinkBuilder(l.title).Type(dashboard.DashboardLinkTypeLink).Url(l.url(source))
}
