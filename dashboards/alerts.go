package dashboards

import (
	"fmt"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/rules"
)

// ourAlerts selects Plumbline's own alerts by their names: Prometheus may have other people's,
// and one that always fires as a sign of life.
func ourAlerts() string {
	names, err := rules.Alerts()
	if err != nil {
		panic(err) // the files are part of the program
	}
	slices.Sort(names)
	return fmt.Sprintf(`alertname=~"%s"`, strings.Join(slices.Compact(names), "|"))
}
