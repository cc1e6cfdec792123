// Package bench proves the chart of databases on storage classes with Helm itself and a real API server.
package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

const (
	namespace = "bench"
	registry  = "image.registry=registry.example.org/plumbline"
	two       = "classes={longhorn-r1,longhorn-r3}"
	everyKind = "postgresqlsync.enabled=true,mysql.enabled=true"
)

func chart(elements ...string) string {
	return filepath.Join(append([]string{testkit.Root(), "manifests", "bench"}, elements...)...)
}

// sets are values as Helm's arguments; one that ends in .yaml is a values file of the chart.
func sets(values []string) (arguments []string) {
	for _, v := range values {
		switch {
		case strings.HasSuffix(v, ".yaml"):
			arguments = append(arguments, "--values="+chart(v))
		case strings.HasPrefix(v, "{"):
			arguments = append(arguments, "--set-json="+v)
		default:
			arguments = append(arguments, "--set="+v)
		}
	}
	return arguments
}

// template renders the chart with these values.
func template(t *testing.T, values ...string) ([]*unstructured.Unstructured, string, error) {
	t.Helper()
	text, err := kubetest.Helm(t, nil, append([]string{"template", "bench", chart(), "--namespace=" + namespace, "--kube-version=1.36.0"}, sets(values)...)...)
	if err != nil {
		return nil, text, err
	}
	file := filepath.Join(t.TempDir(), "rendered.yaml")
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return kubetest.Read(t, file), text, nil
}

// long is a class of the longest name that Kubernetes takes for one in the labels of volumes.
var long = "class." + strings.Repeat("with-a-long-name.", 13) + "example"

// combinations are the values files and the switches.
func combinations(t *testing.T) map[string][]string {
	all := map[string][]string{
		"defaults":   {registry, two},
		"all":        {registry, two, everyKind, "soak.enabled=true,matrix.experiment=dalibo", "quota.pods=30,quota.persistentvolumeclaims=10"},
		"odd names":  {registry, "{\"classes\": [\"1e3\", \"true\", \"a.b\", \"a-b\", \"dsn\", \"" + long + "\"]}", everyKind, "soak.enabled=true,matrix.experiment=sysperfeval"},
		"nothing":    {registry, two, "postgresql.enabled=false,canary.enabled=false,baseline.enabled=false,loads.enabled=false,networkPolicies.enabled=false"},
		"no monitor": {registry, two, everyKind, "soak.enabled=true,prometheus.operator=false,baseline.enabled=false"},
		"label":      {registry, two, everyKind, "soak.enabled=true,prometheus.release=stack,prometheus.labels.team=storage,image.pullSecrets={one},podAnnotations.team=storage"},
		"openshift":  {registry, two, everyKind, "soak.enabled=true,matrix.experiment=wal,openshift.enabled=true"},
		"placement": {registry, two, everyKind, "soak.enabled=true,matrix.experiment=wal,placement.nodeSelector.pool=infra,placement.tolerations[0].operator=Exists",
			"placement.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=kubernetes.io/hostname",
			"placement.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchLabels.pool=x"},
		// A small node with other images, as of a test.
		"small": {registry, "classes={held}", "mysql.enabled=true,mysql.image=e2e/mariadb,mysql.args={--innodb-buffer-pool-size=64M},mysql.exporter.image=e2e/exporter,mysql.resources.limits=null",
			"image.pullPolicy=Never,postgresql.instances=2,postgresql.image=e2e/postgresql:15,postgresql.storage.size=1Gi,postgresql.resources.limits=null,postgresql.parameters.shared_buffers=64MB",
			"postgresql.spec.stopDelay=10,canary.rate=20,baseline.duration=3m,baseline.extraArgs={--max-duration=3m,--force}"},
	}
	files, err := filepath.Glob(chart("*.yaml"))
	if err != nil || len(files) < 9 {
		t.Fatalf("values files %q, %v", files, err)
	}
	for _, file := range files {
		if name := filepath.Base(file); name != "Chart.yaml" && name != "values.yaml" {
			all[name] = []string{name, registry, two}
		}
	}
	return all
}

// cluster starts an API server with the definitions of the operators, and the namespace of a level.
func cluster(t *testing.T, level string) *kubetest.Server {
	t.Helper()
	s := kubetest.Start(t)
	s.ApplyCRDs(kubetest.ModuleCRDs(t, "prometheus-operator")...)
	s.ApplyCRDs(kubetest.ModuleCRDs(t, "cloudnative-pg")...)
	s.Apply(parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: "+namespace+", labels: {pod-security.kubernetes.io/enforce: "+level+"}}}"))
	return s
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

func find(t *testing.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() == kind && o.GetName() == name {
			return o
		}
	}
	t.Fatalf("no %s %s", kind, name)
	return nil
}

func convert(t *testing.T, from *unstructured.Unstructured, to any) {
	t.Helper()
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(from.Object, to); err != nil {
		t.Fatal(err)
	}
}

// podPaths are where the kinds that start pods have theirs.
var podPaths = map[string][]string{
	"Deployment": {"spec", "template"}, "StatefulSet": {"spec", "template"}, "Job": {"spec", "template"}, "CronJob": {"spec", "jobTemplate", "spec", "template"},
}

// podOf is the pod that an object would start, or nil if it starts none.
func podOf(t *testing.T, o *unstructured.Unstructured) *core.Pod {
	t.Helper()
	path, ok := podPaths[o.GetKind()]
	if !ok {
		return nil
	}
	found, _, err := unstructured.NestedMap(o.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	var pod core.Pod
	convert(t, &unstructured.Unstructured{Object: found}, &pod)
	pod.APIVersion, pod.Kind, pod.Name, pod.Namespace = "v1", "Pod", "a-pod", o.GetNamespace()
	// Claims by template become volumes of a set's pod.
	claims, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	for _, c := range claims {
		name, _, _ := unstructured.NestedString(c.(map[string]any), "metadata", "name")
		pod.Spec.Volumes = append(pod.Spec.Volumes, core.Volume{Name: name, VolumeSource: core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: name}}})
	}
	return &pod
}

// templates renders all combinations and has a real API server check each object strictly, and each pod under the level
// "restricted".
func templates(t *testing.T, s *kubetest.Server) {
	for name, values := range combinations(t) {
		t.Run(name, func(t *testing.T) {
			objects, text, err := template(t, values...)
			if err != nil {
				t.Fatal(text)
			}
			seen := map[string]bool{}
			for _, o := range objects {
				id := o.GetKind() + " " + o.GetName()
				if seen[id] {
					t.Errorf("%s is there twice", id)
				}
				seen[id] = true
				if o.GetNamespace() != namespace {
					t.Errorf("%s is in the namespace %q: a bench is its release's namespace and nothing else", id, o.GetNamespace())
				}
				if o.GetLabels()["app.kubernetes.io/part-of"] != "plumbline" {
					t.Errorf("%s has no label part-of", id)
				}
				if err := s.DryRun(o); err != nil {
					t.Errorf("%s: %v", id, err)
				}
				pod := podOf(t, o)
				if pod == nil {
					continue
				}
				made, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
				if err != nil {
					t.Fatal(err)
				}
				delete(made, "status")
				if err := s.DryRun(&unstructured.Unstructured{Object: made}); err != nil {
					t.Errorf("the pod of %s: %v", id, err)
				}
				if err := careful(o, pod, name == "openshift"); err != nil {
					t.Errorf("the pod of %s: %v", id, err)
				}
			}
			if text, err := kubetest.Helm(t, nil, append([]string{"lint", "--strict", chart()}, sets(values)...)...); err != nil {
				t.Errorf("lint: %s", text)
			}
		})
	}
	// The level is in force, and so are the definitions.
	objects, text, err := template(t, combinations(t)["all"]...)
	if err != nil {
		t.Fatal(text)
	}
	host := find(t, objects, "Deployment", "canary-postgresql-longhorn-r1")
	pod := podOf(t, host)
	pod.Spec.HostPID = true
	made, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	delete(made, "status")
	if err := s.DryRun(&unstructured.Unstructured{Object: made}); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Errorf("a canary in the host's PID namespace: %v", err)
	}
	for _, c := range []struct {
		kind, name string
		value      any
		path       []string
		want       string
	}{
		{"Cluster", "postgresql-longhorn-r1", int64(0), []string{"spec", "instances"}, "spec.instances"},
		{"Cluster", "postgresql-longhorn-r1", "x", []string{"spec", "storge"}, "field not declared in schema"},
		{"CronJob", "pgbench-longhorn-r1", "daily", []string{"spec", "schedule"}, "schedule"},
		{"ResourceQuota", "bench", "many", []string{"spec", "hard", "pods"}, "quantit"},
	} {
		o := find(t, objects, c.kind, c.name).DeepCopy()
		if err := unstructured.SetNestedField(o.Object, c.value, c.path...); err != nil {
			t.Fatal(err)
		}
		if err := s.DryRun(o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s with %v: the server answers %v", c.name, c.path, err)
		}
	}
}

// careful checks what no security level requires.
func careful(o *unstructured.Unstructured, pod *core.Pod, openshift bool) error {
	if pod.Spec.NodeSelector[core.LabelOSStable] != "linux" {
		return fmt.Errorf("its node selector is %v, and there are no images but for Linux", pod.Spec.NodeSelector)
	}
	if token := pod.Spec.AutomountServiceAccountToken; (token == nil || *token) && !strings.HasPrefix(o.GetName(), "baseline-") {
		return fmt.Errorf("it has a token of the API server")
	}
	if s := pod.Spec.SecurityContext; openshift && (s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil) {
		return fmt.Errorf("it names a user or a group, which restricted-v2 refuses")
	}
	for _, c := range pod.Spec.Containers {
		readOnly := c.SecurityContext.ReadOnlyRootFilesystem
		if (readOnly == nil || !*readOnly) && c.Name != "mysql" {
			return fmt.Errorf("container %s can write to its root", c.Name)
		}
		for _, name := range []core.ResourceName{core.ResourceCPU, core.ResourceMemory} {
			if c.Resources.Requests[name] == (core.ResourceList{})[name] {
				return fmt.Errorf("container %s has no request of %s", c.Name, name)
			}
		}
		for _, word := range append(slices.Clone(c.Args), c.Command...) {
			if strings.Contains(word, "assword=") || strings.Contains(word, "--dsn") {
				return fmt.Errorf("container %s has a secret in its command line: %s", c.Name, word)
			}
		}
	}
	return nil
}

// TestPolicies checks that each program that is let out is let out for itself alone, to DNS of every usual kind, to
// databases of the namespace, and to Prometheus' port.
func TestPolicies(t *testing.T) {
	values := append(combinations(t)["all"], "prometheus.url=https://thanos.example.org:10999/x")
	objects, text, err := template(t, values...)
	if err != nil {
		t.Fatal(text)
	}
	for name, want := range map[string]struct{ ports, places []string }{
		"soak":   {[]string{"3306", "5432"}, []string{"169.254.20.10/32 53", "kube-system 53", "openshift-dns 5353"}},
		"matrix": {[]string{"10902", "10999", "3306", "5432", "8428", "9090"}, []string{"169.254.20.10/32 53", "kube-system 53", "openshift-dns 5353"}},
	} {
		var p networking.NetworkPolicy
		convert(t, find(t, objects, "NetworkPolicy", name), &p)
		if !slices.Equal(p.Spec.PolicyTypes, []networking.PolicyType{networking.PolicyTypeEgress}) || len(p.Spec.PodSelector.MatchLabels) != 1 {
			t.Errorf("%s: %v of the pods %v", name, p.Spec.PolicyTypes, p.Spec.PodSelector)
		}
		for _, o := range objects {
			pod := podOf(t, o)
			if pod == nil {
				continue
			}
			const key = "app.kubernetes.io/name"
			if got := pod.Labels[key] == p.Spec.PodSelector.MatchLabels[key]; got != (strings.SplitN(o.GetName(), "-", 2)[0] == name) {
				t.Errorf("the policy %s selects the pod of %s: %v", name, o.GetName(), got)
			}
		}
		var ports, places []string
		for _, rule := range p.Spec.Egress {
			for _, port := range rule.Ports {
				number := fmt.Sprint(port.Port.IntVal)
				if len(rule.To) == 0 || rule.To[0].PodSelector != nil {
					ports = append(ports, number)
				}
				for _, to := range rule.To {
					switch {
					case to.NamespaceSelector != nil:
						places = append(places, to.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]+" "+number)
					case to.IPBlock != nil:
						places = append(places, to.IPBlock.CIDR+" "+number)
					}
				}
			}
		}
		slices.Sort(ports)
		slices.Sort(places)
		if places = slices.Compact(places); !slices.Equal(ports, want.ports) || !slices.Equal(places, want.places) {
			t.Errorf("%s is let out to the ports %q, want %q; to %q, want %q", name, ports, want.ports, places, want.places)
		}
	}
	var p networking.NetworkPolicy
	convert(t, find(t, objects, "NetworkPolicy", "bench"), &p)
	var from []string
	for _, rule := range p.Spec.Ingress {
		for _, peer := range rule.From {
			if peer.NamespaceSelector != nil {
				from = append(from, fmt.Sprint(peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"], len(rule.Ports)))
			}
		}
	}
	if len(p.Spec.PodSelector.MatchLabels) != 0 || !slices.Equal(from, []string{"cnpg-system0", "monitoring1"}) {
		t.Errorf("into the pods %v come %q", p.Spec.PodSelector, from)
	}
}

// TestMonitors checks that each monitor's port is one of its pods', that all have the label that Prometheus selects by,
// and that generators are not scraped.
func TestMonitors(t *testing.T) {
	objects, text, err := template(t, combinations(t)["label"]...)
	if err != nil {
		t.Fatal(text)
	}
	scraped := map[string]int{}
	for _, monitor := range objects {
		if monitor.GetKind() == "PrometheusRule" || monitor.GetKind() == "PodMonitor" {
			if labels := monitor.GetLabels(); labels["release"] != "stack" || labels["team"] != "storage" {
				t.Errorf("%s has the labels %v", monitor.GetName(), labels)
			}
		}
		if monitor.GetKind() != "PodMonitor" {
			continue
		}
		labels, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
		for _, o := range objects {
			pod := podOf(t, o)
			if pod == nil || !includes(pod.Labels, labels) {
				continue
			}
			for _, c := range pod.Spec.Containers {
				for _, p := range c.Ports {
					if p.Name == "metrics" {
						scraped[monitor.GetName()]++
						if strings.Contains(o.GetName(), "generators") {
							t.Errorf("%s scrapes %s", monitor.GetName(), o.GetName())
						}
					}
				}
			}
		}
	}
	// Of two classes: three databases with a canary each; fio, pgbench, sysbench and k6.
	want := map[string]int{"plumbline-canary": 6, "mysql": 2, "plumbline-load": 8, "soak": 1}
	if fmt.Sprint(scraped) != fmt.Sprint(want) {
		t.Errorf("the monitors select the ports of %v, want %v", scraped, want)
	}
	for _, kind := range []string{"postgresql", "postgresqlsync"} {
		o := find(t, objects, "Cluster", kind+"-longhorn-r1")
		if got, _, _ := unstructured.NestedString(o.Object, "spec", "inheritedMetadata", "labels", "release"); got != "stack" || o.GetLabels()["release"] != "" {
			t.Errorf("%s's monitor inherits the label release %q, want stack", o.GetName(), got)
		}
	}
}

func includes(all, some map[string]string) bool {
	for key, value := range some {
		if all[key] != value {
			return false
		}
	}
	return true
}

// TestValues checks what single values do to a Cluster, the servers' images and the canaries.
func TestValues(t *testing.T) {
	objects, text, err := template(t, combinations(t)["small"]...)
	if err != nil {
		t.Fatal(text)
	}
	spec := find(t, objects, "Cluster", "postgresql-held").Object["spec"].(map[string]any)
	for path, want := range map[string]string{"instances": "2", "imageName": "e2e/postgresql:15", "imagePullPolicy": "Never", "storage": "map[size:1Gi storageClass:held]", "stopDelay": "10",
		"resources": "map[requests:map[cpu:2 memory:4Gi]]"} {
		if got := fmt.Sprint(spec[path]); got != want {
			t.Errorf("the Cluster's %s is %s, want %s", path, got, want)
		}
	}
	parameters, _, _ := unstructured.NestedStringMap(spec, "postgresql", "parameters")
	if parameters["shared_buffers"] != "64MB" || parameters["max_connections"] != "350" {
		t.Errorf("parameters %v", parameters)
	}
	for name, want := range map[string]string{
		"StatefulSet mysql-held":                       "e2e/mariadb Never [--innodb-buffer-pool-size=64M]",
		"Deployment canary-postgresql-held":            "[canary --web.listen-address=:9700 --database=bench/postgresql-held --storageclass=held --rate=20 --engine=postgres]",
		"Deployment canary-mysql-held":                 "--engine=mysql]",
		"CronJob baseline-postgresql-held":             "--duration=3m --refuse-slower=0.15 --max-duration=3m --force]",
		"CronJob pgbench-held":                         "Never [pgbench --web.listen-address=:9700 --storageclass=held --database=bench/postgresql-held --init",
		"CronJob fio-held":                             "[fio --web.listen-address=:9700 --storageclass=held --database=fio-held --directory=/data",
		"CronJob canary-generators-held":               "--generators=4 --once=15m --json]",
		"PodMonitor mysql":                             "",
		"PrometheusRule plumbline-baseline-mysql-held": "",
	} {
		kind, name, _ := strings.Cut(name, " ")
		o := find(t, objects, kind, name)
		if pod := podOf(t, o); pod != nil {
			c := pod.Spec.Containers[0]
			if got := fmt.Sprint(c.Image, " ", c.ImagePullPolicy, " ", c.Args); !strings.Contains(got, want) {
				t.Errorf("%s %s has %s, want %s", kind, name, got, want)
			}
		}
	}
	// What a pod reads of Secrets is there: CloudNativePG's of a Cluster, the chart's own.
	made := map[string]string{"postgresql-held-app": "uri"}
	secret := find(t, objects, "Secret", "mysql")
	for _, o := range objects {
		pod := podOf(t, o)
		if pod == nil {
			continue
		}
		for _, c := range pod.Spec.Containers {
			for _, e := range c.Env {
				if e.ValueFrom == nil || e.ValueFrom.SecretKeyRef == nil {
					continue
				}
				ref := e.ValueFrom.SecretKeyRef
				if _, ok, _ := unstructured.NestedString(secret.Object, "data", ref.Key); made[ref.Name] != ref.Key && (ref.Name != "mysql" || !ok) {
					t.Errorf("%s reads %s of the Secret %s, which nobody makes", o.GetName(), ref.Key, ref.Name)
				}
			}
		}
	}
}

// TestClassNames checks that names of classes are names of objects where these can be, and else differ all the same and
// are not too long.
func TestClassNames(t *testing.T) {
	objects, text, err := template(t, combinations(t)["odd names"]...)
	if err != nil {
		t.Fatal(text)
	}
	classes := map[string]string{}
	for _, o := range objects {
		if o.GetKind() == "Cluster" && strings.HasPrefix(o.GetName(), "postgresqlsync-") {
			class, _, _ := unstructured.NestedString(o.Object, "spec", "storage", "storageClass")
			classes[class] = strings.TrimPrefix(o.GetName(), "postgresqlsync-")
			if len(o.GetName()) > 50 || strings.Contains(o.GetName(), ".") {
				t.Errorf("CloudNativePG takes no Cluster named %s", o.GetName())
			}
		}
	}
	for _, class := range []string{"1e3", "true", "a-b", "dsn"} {
		if classes[class] != class {
			t.Errorf("class %s is %q in names", class, classes[class])
		}
	}
	if len(classes) != 6 || !strings.HasPrefix(classes["a.b"], "a-b-") || !strings.HasPrefix(classes[long], "class-with-a-long-n-") {
		t.Errorf("classes in names: %v", classes)
	}
	if !strings.Contains(text, "--storageclass="+long+"\n") {
		t.Error("the whole name of the long class is in no argument")
	}
}
