package bench

import (
	"os"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/tests/testkit"
)

// TestRefused checks that a wrong value is an error that names it, and explains what to do where the name is not
// enough.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		values []string
		want   string
	}{
		"no classes":              {[]string{registry}, "'/classes'"},
		"no registry":             {[]string{two}, "image.registry is empty: give the registry"},
		"latest":                  {[]string{registry, two, "image.tag=latest"}, "image.tag is latest"},
		"unknown key":             {[]string{registry, two, "postgres.enabled=true"}, "'postgres'"},
		"unknown key below":       {[]string{registry, two, "matrix.repeats=6"}, "'repeats'"},
		"a class twice":           {[]string{registry, "classes={a,a}"}, "'/classes'"},
		"a class of no name":      {[]string{registry, "classes={Longhorn_R1}"}, "'/classes/0'"},
		"a class with a command":  {[]string{registry, `{"classes": ["a; rm -r"]}`}, "'/classes/0'"},
		"a class that is a flag":  {[]string{registry, "classes={--rate=1}"}, "'/classes/0'"},
		"a class of 241":          {[]string{registry, "classes={" + strings.Repeat("a", 241) + "}"}, "'/classes/0'"},
		"unknown experiment":      {[]string{registry, two, "matrix.experiment=tpcc"}, "'/matrix/experiment'"},
		"scale":                   {[]string{registry, two, "matrix.scale=2"}, "'/matrix/scale'"},
		"no rounds":               {[]string{registry, two, "matrix.repeat=0"}, "'/matrix/repeat'"},
		"size in words":           {[]string{registry, two, "postgresql.storage.size=large"}, "'/postgresql/storage/size'"},
		"parameter of no string":  {[]string{registry, two, "postgresql.parameters.max_connections=300"}, "'/postgresql/parameters/max_connections'"},
		"duration in words":       {[]string{registry, two, "baseline.duration=soon"}, "'/baseline/duration'"},
		"one synchronous":         {[]string{registry, two, "postgresqlsync.instances=1"}, "'/postgresqlsync/instances'"},
		"quantity":                {[]string{registry, two, "quota.pods=many"}, "'/quota/pods'"},
		"phase without a rate":    {[]string{registry, two, `{"soak": {"plan": {"phases": [{"name": "x", "at": "1h", "for": "1h", "profile": "tpcb-like"}]}}}`}, "'/soak/plan/phases/0'"},
		"pins without operator":   {[]string{registry, two, "prometheus.operator=false"}, "baseline.enabled needs prometheus.operator"},
		"soak on nothing":         {[]string{registry, two, "soak.enabled=true,postgresql.enabled=false"}, "set postgresql.enabled=true"},
		"dalibo on MySQL":         {[]string{registry, two, "matrix.experiment=dalibo,matrix.database=mysql,mysql.enabled=true"}, "matrix.experiment dalibo runs on PostgreSQL"},
		"dalibo on nothing":       {[]string{registry, two, "matrix.experiment=dalibo,postgresql.enabled=false"}, "postgresql.enabled=true, as manifests/bench/dalibo.yaml does"},
		"mayastor on nothing":     {[]string{registry, two, "matrix.experiment=mayastor,matrix.database=mysql"}, "mysql (matrix.database), which is off"},
		"mayastor on small disks": {[]string{registry, two, "matrix.experiment=mayastor,matrix.database=mysql,mysql.enabled=true"}, "set its storage.size=100Gi, or matrix.scale=0.05"},
		"files without a volume":  {[]string{registry, two, "matrix.experiment=wal,matrix.volumeSize="}, "matrix.volumeSize is empty"},
	} {
		t.Run(name, func(t *testing.T) {
			_, text, err := template(t, c.values...)
			if err == nil || !strings.Contains(text, c.want) {
				t.Errorf("%v, want %q: %.700s", err, c.want, text)
			}
		})
	}
}

// TestSchema checks that the schema has exactly the values that there are, each with a type and in words, and takes no
// other.
func TestSchema(t *testing.T) {
	read := func(file string) (all map[string]any) {
		text, err := os.ReadFile(chart(file))
		if err == nil {
			err = yaml.Unmarshal(text, &all)
		}
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	schema := read("values.schema.json")
	resolve := func(s map[string]any) map[string]any {
		if name, ok := strings.CutPrefix(text(s["$ref"]), "#/$defs/"); ok {
			target, _ := schema["$defs"].(map[string]any)[name].(map[string]any)
			return target
		}
		return s
	}
	var walk func(path string, s, values map[string]any)
	walk = func(path string, s, values map[string]any) {
		properties, ok := resolve(s)["properties"].(map[string]any)
		if !ok {
			return
		}
		if resolve(s)["additionalProperties"] != false {
			t.Errorf("%s: the schema takes other keys, too", path)
		}
		for name, p := range properties {
			p := p.(map[string]any)
			if resolve(p)["type"] == nil || text(p["description"]) == "" {
				t.Errorf("%s.%s has no type or no description", path, name)
			}
			value, there := values[name]
			if !there && values != nil {
				t.Errorf("%s.%s is not in values.yaml", path, name)
			}
			if below, ok := value.(map[string]any); ok && len(below) > 0 {
				walk(path+"."+name, p, below)
			}
		}
		for name := range values {
			if properties[name] == nil {
				t.Errorf("%s.%s is not in the schema", path, name)
			}
		}
	}
	walk("", schema, read("values.yaml"))
	// Both charts are of one version: their images are.
	own := read("Chart.yaml")
	other := map[string]any{}
	file, err := os.ReadFile(testkit.Root() + "/manifests/chart/Chart.yaml")
	if err == nil {
		err = yaml.Unmarshal(file, &other)
	}
	if err != nil || own["version"] != other["version"] || own["appVersion"] != other["appVersion"] {
		t.Errorf("the bench is %v of %v, Plumbline's chart %v of %v: %v", own["version"], own["appVersion"], other["version"], other["appVersion"], err)
	}
}

func text(v any) string { s, _ := v.(string); return s }
