package bench

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/plumbline/plumbline/loadgen/matrix"
)

// TestExperiments checks that each published experiment has a values file, that it runs that one and nothing beside it,
// and that its targets have what its steps need: a database of the right engine, a folder, and room.
func TestExperiments(t *testing.T) {
	files, _ := filepath.Glob(chart("*.yaml"))
	var names []string
	for _, file := range files {
		if name := filepath.Base(file); name != "Chart.yaml" && name != "values.yaml" {
			names = append(names, name[:len(name)-len(".yaml")])
		}
	}
	if want := slices.Sorted(maps.Keys(matrix.Matrices)); !slices.Equal(names, want) {
		t.Errorf("there are values files for %q, and the experiments %q", names, want)
	}
	for name, m := range matrix.Matrices {
		t.Run(name, func(t *testing.T) {
			objects, text, err := template(t, name+".yaml", registry, "classes={local-path,longhorn-r3}", "copies.longhorn-r3=3")
			if err != nil {
				t.Fatal(text)
			}
			for _, o := range objects {
				if kind := o.GetKind(); kind == "CronJob" || kind == "Deployment" {
					t.Errorf("%s %s would work beside it", kind, o.GetName())
				}
			}
			var job batch.Job
			convert(t, find(t, objects, "Job", "matrix-"+name), &job)
			if args := job.Spec.Template.Spec.Containers[0].Args; args[1] != name {
				t.Errorf("it runs %q", args)
			}
			var config core.ConfigMap
			convert(t, find(t, objects, "ConfigMap", "matrix-"+name), &config)
			targets := readTargets(t, config.Data["targets.yaml"], job.Spec.Template.Spec)
			if len(targets) != 2 || !targets[0].Local || targets[0].Replicas != 1 || targets[1].Local || targets[1].Replicas != 3 {
				t.Errorf("targets %+v", targets)
			}
			files, room := 0, resource.MustParse("0")
			for _, v := range job.Spec.Template.Spec.Volumes {
				if v.Ephemeral != nil {
					room = v.Ephemeral.VolumeClaimTemplate.Spec.Resources.Requests[core.ResourceStorage]
				}
			}
			database := false
			for _, s := range m.Steps {
				database = database || s.FIO == nil
				for _, target := range targets {
					if s.FIO != nil && target.Directory == "" || s.FIO == nil && target.DSN == "" {
						t.Errorf("%s has not what %s needs", target.StorageClass, s.Name)
					}
					if (s.Init != nil || s.Pgbench != nil || s.Scan != nil) && target.Engine != "postgres" {
						t.Errorf("%s needs PostgreSQL, and %s is %s", s.Name, target.StorageClass, target.Engine)
					}
				}
				if s.FIO != nil {
					files = max(files, s.FIO.SizeMiB*s.FIO.Jobs)
				}
			}
			if room.Value() < int64(files)<<20 || files == 0 && !room.IsZero() {
				t.Errorf("its files have %d MiB, and a volume %s", files, room.String())
			}
			if got := targets[0].DSN != ""; got != database {
				t.Errorf("it has a database: %v, and needs one: %v", got, database)
			}
		})
	}
}

// readTargets reads a file of targets as a pod does: what it mounts of Secrets is there.
func readTargets(t *testing.T, text string, pod core.PodSpec) []matrix.Target {
	t.Helper()
	path := mounted(t, text, pod)
	targets, err := matrix.ReadTargets(path)
	if err != nil {
		t.Fatal(err)
	}
	return targets
}

// mounted writes a file that has paths below /dsn, and what is there, to another folder; the content of a key is
// SECRET/KEY, as a connection string of its engine. Nothing of a connection string may be in the text itself.
func mounted(t *testing.T, text string, pod core.PodSpec) string {
	t.Helper()
	folder := t.TempDir()
	for _, v := range pod.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, s := range v.Projected.Sources {
			for _, item := range s.Secret.Items {
				dsn := "postgresql://" + s.Secret.Name + "/" + item.Key
				if s.Secret.Name == "mysql" {
					dsn = "app:" + item.Key + "@tcp(mysql:3306)/app"
				}
				if err := os.WriteFile(filepath.Join(folder, item.Path), []byte(dsn), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	path := filepath.Join(folder, "file.yaml")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(text, "/dsn/", folder+"/")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
