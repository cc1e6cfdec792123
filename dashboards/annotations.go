package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// ourAlerts selects Plumbline's own alerts: Prometheus may have other people's, and one that always fires as a sign of
// life.
const ourAlerts = `part_of="plumbline"`

// event is something that happened, drawn over every graph: the times at which the
// expression has a value.
type event struct {
	name, expr, title, text, colour string
	// optional is for frequent events: they are drawn once a user turns on their switch at the top of the dashboard. All
	// others are always drawn and have no switch.
	optional bool
}

// events are those of the storage backends, of Prometheus and of a soak. Their windows are
// fixed: Grafana does not promise $__rate_interval in an annotation.
func events() []event {
	return []event{
		{"Alerts", `ALERTS{alertstate="firing", ` + ourAlerts + `}`, "{{alertname}}", "{{severity}} {{storageclass}} {{persistentvolumeclaim}} {{volume}} {{server}}", vermillion, false},
		{"Degraded volumes", `plumbline_volume_healthy_replicas < on (volume) group_left () plumbline_volume_desired_replicas or volume:degraded:bool == 1`, "Volume degraded", "{{volume}}", orange, false},
		{"Rebuilds", `volume:rebuilding:bool == 1`, "Rebuild", "{{volume}}", purple, false},
		{"Faults of a soak", `loadgen_soak_fault == 1`, "Fault of the soak", "{{fault}}", sky, false},
		{"Databases down", `pg_up == 0 or mysql_up == 0`, "Database down", "{{server}}", vermillion, false},
		{"Restarts, snapshots", `changes(process_start_time_seconds[2m]) > 0 or changes(plumbline_longhorn_replica_snapshots[2m]) > 0`, "Process restarted, or snapshot", "{{job}} {{instance}} {{volume}} {{replica}}", grey, true},
	}
}

// file is a dashboard as it is written: the schema's, with annotations that have a title.
type file struct {
	dashboard.Dashboard
	Annotations annotationList `json:"annotations"`
}

type annotationList struct {
	List []annotation `json:"list"`
}

// annotation has the Prometheus data source's own fields, which the common schema does not name; without them an event
// on a graph shows nothing but its time.
type annotation struct {
	dashboard.AnnotationQuery
	TitleFormat string `json:"titleFormat"`
	TextFormat  string `json:"textFormat"`
}

func annotations(o Options) ([]annotation, error) {
	var all []annotation
	for _, e := range events() {
		source := prometheusSource()
		expr, _, err := perCluster(e.expr, o)
		if err != nil {
			return nil, fmt.Errorf("annotation %q: %w", e.name, err)
		}
		all = append(all, annotation{
			AnnotationQuery: dashboard.AnnotationQuery{
				Name: e.name, Datasource: &source, Enable: !e.optional, Hide: cog.ToPtr(!e.optional),
				IconColor: e.colour, Expr: &expr,
			},
			TitleFormat: e.title,
			TextFormat:  e.text,
		})
	}
	return all, nil
}
