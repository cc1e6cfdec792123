package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// event is something that happened, drawn over every graph: the times at which the
// expression has a value.
type event struct {
	name, expr, title, text, colour string
	// shown says whether it is drawn at first; a click in the dashboard's head changes that.
	shown bool
}

// events are those of the storage engines, of Prometheus and of a soak. Their windows are
// fixed: Grafana does not promise $__rate_interval in an annotation.
var events = []event{
	{"Alerts", `ALERTS{alertstate="firing"}`, "{{alertname}}", "{{severity}} {{storageclass}} {{persistentvolumeclaim}} {{volume}} {{server}}", vermillion, true},
	{"Degraded volumes", `plumbline_volume_healthy_replicas < on (volume) group_left () plumbline_volume_desired_replicas or volume:degraded:bool == 1`, "Volume degraded", "{{volume}}", orange, true},
	{"Rebuilds", `volume:rebuilding:bool == 1`, "Rebuild", "{{volume}}", purple, true},
	{"Faults of a soak", `loadgen_soak_fault == 1`, "Fault of the soak", "{{fault}}", sky, true},
	{"Databases down", `pg_up == 0 or mysql_up == 0`, "Database down", "{{server}}", vermillion, true},
	{"Snapshots", `changes(plumbline_longhorn_replica_snapshots[2m]) > 0`, "Snapshot", "{{volume}} {{replica}}", yellow, false},
	{"Restarts", `changes(process_start_time_seconds[2m]) > 0`, "Process restarted", "{{job}} {{instance}}", grey, false},
}

// file is a dashboard as it is written: the schema's, with annotations that have a title.
type file struct {
	dashboard.Dashboard
	Annotations annotationList `json:"annotations"`
}

type annotationList struct {
	List []annotation `json:"list"`
}

// annotation has the Prometheus data source's own fields, which the common schema does not
// name; without them an event on a graph says nothing but its time.
type annotation struct {
	dashboard.AnnotationQuery
	TitleFormat string `json:"titleFormat"`
	TextFormat  string `json:"textFormat"`
}

func annotations() []annotation {
	var all []annotation
	for _, e := range events {
		source := prometheusSource()
		all = append(all, annotation{
			AnnotationQuery: dashboard.AnnotationQuery{
				Name: e.name, Datasource: &source, Enable: e.shown, Hide: cog.ToPtr(false),
				IconColor: e.colour, Expr: cog.ToPtr(e.expr),
			},
			TitleFormat: e.title,
			TextFormat:  e.text,
		})
	}
	return all
}
