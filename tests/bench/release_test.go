package bench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/soak"
	"github.com/plumbline/plumbline/tests/kubetest"
)

// kinds are what a release makes, by resource.
var kinds = map[string]schema.GroupVersionResource{
	"Deployment":     {Group: "apps", Version: "v1", Resource: "deployments"},
	"StatefulSet":    {Group: "apps", Version: "v1", Resource: "statefulsets"},
	"CronJob":        {Group: "batch", Version: "v1", Resource: "cronjobs"},
	"Job":            {Group: "batch", Version: "v1", Resource: "jobs"},
	"ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
	"ConfigMap":      {Version: "v1", Resource: "configmaps"},
	"Secret":         {Version: "v1", Resource: "secrets"},
	"Service":        {Version: "v1", Resource: "services"},
	"ResourceQuota":  {Version: "v1", Resource: "resourcequotas"},
	"LimitRange":     {Version: "v1", Resource: "limitranges"},
	"NetworkPolicy":  {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	"Role":           {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "roles"},
	"RoleBinding":    {Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "rolebindings"},
	"PodMonitor":     {Group: "monitoring.coreos.com", Version: "v1", Resource: "podmonitors"},
	"PrometheusRule": {Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules"},
	"Cluster":        {Group: "postgresql.cnpg.io", Version: "v1", Resource: "clusters"},
}

// TestCluster has what needs an API server, one for all: it starts for several seconds. Each part leaves it as it found
// it.
func TestCluster(t *testing.T) {
	s := cluster(t, "restricted")
	for _, part := range []struct {
		name string
		run  func(*testing.T, *kubetest.Server)
	}{{"templates", templates}, {"facts", facts}, {"release", release}, {"existing secret", existingSecret}, {"without rights", withoutRights}, {"examples", examples}} {
		t.Run(part.name, func(t *testing.T) { part.run(t, s.In(t)) })
	}
}

// helms is a release on an API server without a kubelet: objects come and go, and no pod runs.
type helms struct {
	*kubetest.Server
	t          *testing.T
	kubeconfig []string
}

// on is a part's own release on the server of all.
func on(t *testing.T, s *kubetest.Server) *helms {
	return &helms{Server: s, t: t, kubeconfig: []string{"KUBECONFIG=" + s.Kubeconfig(s.Config.BearerToken)}}
}

func (h *helms) try(arguments ...string) (string, error) {
	h.t.Helper()
	return kubetest.Helm(h.t, h.kubeconfig, append(arguments, "--namespace="+namespace)...)
}

func (h *helms) run(arguments ...string) string {
	h.t.Helper()
	text, err := h.try(arguments...)
	if err != nil {
		h.t.Fatalf("helm %s: %v\n%s", arguments[0], err, text)
	}
	return text
}

// refused fails unless Helm ends with an error that has this.
func (h *helms) refused(want string, arguments ...string) {
	h.t.Helper()
	if text, err := h.try(arguments...); err == nil || !strings.Contains(text, want) {
		h.t.Errorf("helm %s: %v, want %q:\n%s", arguments[0], err, want, text)
	}
}

func (h *helms) get(kind, name string) *unstructured.Unstructured {
	h.t.Helper()
	o, err := h.Client.Resource(kinds[kind]).Namespace(namespace).Get(context.Background(), name, metav1.GetOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
	return o
}

// facts installs a matrix and a soak over several classes: each target has the copies that its StorageClass has, the
// first control is the one that others are compared with, and connection strings are where CloudNativePG puts them.
func facts(t *testing.T, s *kubetest.Server) {
	h := on(t, s)
	for class, rest := range map[string]string{
		"local-path":  "provisioner: rancher.io/local-path",
		"longhorn-r3": `provisioner: driver.longhorn.io, parameters: {numberOfReplicas: "3"}`,
		"ceph-block":  "provisioner: rook-ceph.rbd.csi.ceph.com, parameters: {pool: replicapool}",
		"kadalu":      "provisioner: kadalu, parameters: {storage_type: Replica2}",
		"mayastor":    `provisioner: io.openebs.csi-mayastor, parameters: {repl: "2"}`,
		"cstor":       `provisioner: cstor.csi.openebs.io, parameters: {replicaCount: "4"}`,
		"jiva":        "provisioner: jiva.csi.openebs.io, parameters: {policy: x}",
		"static":      "provisioner: kubernetes.io/no-provisioner",
		"marked":      "provisioner: example.org/disk",
	} {
		metadata := "name: " + class
		if class == "marked" {
			metadata += `, annotations: {plumbline.io/control: "true"}`
		}
		o := parse(t, fmt.Sprintf("{apiVersion: storage.k8s.io/v1, kind: StorageClass, metadata: {%s}, %s}", metadata, rest))
		h.Apply(o)
		defer h.Delete(o)
	}
	want := []matrix.Target{{StorageClass: "longhorn-r3", Replicas: 3}, {StorageClass: "marked", Replicas: 1, Local: true}, {StorageClass: "local-path", Replicas: 1}, {StorageClass: "ceph-block"},
		{StorageClass: "kadalu", Replicas: 2}, {StorageClass: "mayastor", Replicas: 2}, {StorageClass: "cstor", Replicas: 4}, {StorageClass: "jiva", Replicas: 7}, {StorageClass: "static", Replicas: 1}}
	var classes []string
	for i := range want {
		class := want[i].StorageClass
		classes = append(classes, class)
		want[i].Engine, want[i].DSN = "postgres", "postgresql://postgresql-"+class+"-app/uri"
	}
	values := sets([]string{registry, "classes={" + strings.Join(classes, ",") + "}", "copies.jiva=7", "matrix.experiment=sysperfeval,matrix.repeat=4,matrix.scale=0.3,matrix.volumeSize=9Gi",
		"prometheus.cluster=eu-1,loads.enabled=false,canary.enabled=false,baseline.enabled=false,soak.enabled=true,soak.plan.duration=5h"})
	h.refused("the cluster has no StorageClass gone, it has ceph-block, cstor", append([]string{"install", "facts", chart()}, sets([]string{registry, "classes={gone}"})...)...)
	h.run(append([]string{"install", "facts", chart()}, values...)...)

	forget := func(all []matrix.Target) []matrix.Target {
		all = slices.Clone(all)
		for i := range all {
			all[i].DSNFile = ""
		}
		return all
	}
	config := func(name, key string) string {
		var c core.ConfigMap
		convert(t, h.get("ConfigMap", name), &c)
		if strings.Contains(c.Data[key], "://") {
			t.Errorf("the ConfigMap %s has a connection string:\n%s", name, c.Data[key])
		}
		return c.Data[key]
	}
	var job batch.Job
	convert(t, h.get("Job", "matrix-sysperfeval"), &job)
	pod := job.Spec.Template.Spec
	with := slices.Clone(want)
	for i := range with {
		with[i].Directory = "/data/" + with[i].StorageClass
	}
	if got := forget(readTargets(t, config("matrix-sysperfeval", "targets.yaml"), pod)); !slices.Equal(got, with) {
		t.Errorf("targets\n%+v\nwant\n%+v", got, with)
	}
	args := []string{"matrix", "sysperfeval", "--targets=/targets/targets.yaml", "--output=/dev/stdout", "--repeat=4", "--scale=0.3", "--wait=30m", "--pod=$(NAMESPACE)/$(POD)",
		"--prometheus=http://prometheus-operated.monitoring:9090", "--cluster=eu-1"}
	if !slices.Equal(pod.Containers[0].Args, args) || !strings.HasPrefix(pod.Containers[0].Image, "registry.example.org/plumbline/loadgen-tools:0.") {
		t.Errorf("args %q of %s", pod.Containers[0].Args, pod.Containers[0].Image)
	}
	mounts := map[string]string{}
	for _, m := range pod.Containers[0].VolumeMounts {
		mounts[m.Name] = m.MountPath
	}
	claims := 0
	for _, v := range pod.Volumes {
		if v.Ephemeral == nil {
			continue
		}
		claims++
		if claim := v.Ephemeral.VolumeClaimTemplate.Spec; mounts[v.Name] != "/data/"+*claim.StorageClassName || claim.Resources.Requests.Storage().String() != "9Gi" {
			t.Errorf("volume %s: claim %+v at %s", v.Name, claim, mounts[v.Name])
		}
	}
	if claims != len(classes) {
		t.Errorf("%d volumes for %d classes", claims, len(classes))
	}
	set := h.get("StatefulSet", "soak")
	plan, err := soak.ReadPlan(mounted(t, config("soak", "plan.yaml"), podOf(t, set).Spec), 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := forget(plan.Targets); !slices.Equal(got, want) || plan.Duration != 5*time.Hour || len(plan.Phases) != 1 {
		t.Errorf("the soak's plan\n%+v\nwant targets\n%+v", plan, want)
	}

	// A Job cannot change: what would change it is refused, and what would not is none of its business.
	h.run(append([]string{"upgrade", "facts", chart(), "--set=soak.plan.interval=20s"}, values...)...)
	h.refused("kubectl --namespace bench delete job matrix-sysperfeval", append(append([]string{"upgrade", "facts", chart()}, values...), "--set=matrix.scale=0.5")...)
	h.run("uninstall", "facts")
}

// release installs databases, pins a canary by the account of its baseline, and upgrades: the pin and MySQL's password
// stay. Then nothing is left of it, and what was there before is as it was.
func release(t *testing.T, s *kubetest.Server) {
	h := on(t, s)
	before := h.everything()
	values := sets([]string{registry, "classes={local-path}", everyKind, "prometheus.release=stack", "quota.pods=100"})
	h.run(append([]string{"install", "bench", chart()}, values...)...)
	installed := h.everything()
	if len(installed) < 30 {
		t.Errorf("only %d objects: %q", len(installed), installed)
	}
	password := h.get("Secret", "mysql").Object["data"].(map[string]any)

	const server, name = "bench/postgresql-local-path", "plumbline-baseline-postgresql-local-path"
	config := rest.AnonymousClientConfig(h.Config)
	config.BearerToken = h.Token(namespace, "baseline-postgresql-local-path")
	pin := func(name string, p95 float64) error {
		r := result.Result{Tool: "canary", Profile: "tpcb-like", TargetRate: 10, Completed: 6000,
			Response: result.Latency{Quantiles: []result.Quantile{{Q: 0.5, Value: p95 / 2}, {Q: 0.95, Value: p95}}}}
		return baseline.Output{Version: "v", History: 5, RefuseSlower: 0.15}.ToPrometheusRule(t.Context(), config, namespace+"/"+name,
			[]baseline.Baseline{{StorageClass: "local-path", Database: server, Result: r}}, time.Now())
	}
	if err := baseline.Reach(t.Context(), config, namespace+"/"+name); err != nil {
		t.Fatal(err)
	}
	for _, p95 := range []float64{0.004, 0.003} {
		if err := pin(name, p95); err != nil {
			t.Fatal(err)
		}
	}
	if err := pin(name, 0.009); err == nil || !strings.Contains(err.Error(), "3.0 times as long as the pinned one of 3.000 ms") {
		t.Errorf("a pin three times as slow gave %v", err)
	}
	for _, change := range [][]string{
		append([]string{"upgrade", "bench", chart(), "--set=image.tag=0.9.9"}, values...),
		{"upgrade", "bench", chart(), "--reset-then-reuse-values", "--set=classes={local-path,longhorn-r3}"},
		{"rollback", "bench", "2"},
		append([]string{"upgrade", "bench", chart(), "--server-side=false", "--set=prometheus.labels.team=storage"}, values...),
	} {
		h.run(change...)
		o := h.get("PrometheusRule", name)
		groups, _, _ := unstructured.NestedSlice(o.Object, "spec", "groups")
		if len(groups) != 1 || !strings.Contains(o.GetAnnotations()["plumbline.io/previous"], "vector(0.004)") || o.GetLabels()["release"] != "stack" {
			t.Errorf("after %s there are %d groups, labels %v and annotations %v", change[0], len(groups), o.GetLabels(), o.GetAnnotations())
		}
		if now := h.get("Secret", "mysql").Object["data"].(map[string]any); now["password"] != password["password"] || now["dsn-local-path"] != password["dsn-local-path"] {
			t.Errorf("after %s MySQL has another password", change[0])
		}
	}
	// The account writes its own object, which is there, and nothing else.
	rules := kinds["PrometheusRule"]
	other := h.get("PrometheusRule", name)
	other.SetName("somebody-elses")
	other.SetResourceVersion("")
	if _, err := h.Client.Resource(rules).Namespace(namespace).Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"somebody-elses", "plumbline-baseline-mysql-local-path"} {
		if err := pin(name, 0.001); !apierrors.IsForbidden(err) {
			t.Errorf("the pin %s: %v", name, err)
		}
	}
	if err := pin("not-there", 0.001); err == nil {
		t.Error("an object that is not there was written")
	}
	own, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := own.Resource(rules).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the pins could be deleted: %v", err)
	}
	if _, err := own.Resource(kinds["Secret"]).Namespace(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the account reads Secrets: %v", err)
	}
	if err := h.Client.Resource(rules).Namespace(namespace).Delete(t.Context(), "somebody-elses", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	h.run("uninstall", "bench")
	if left := h.everything(); !slices.Equal(left, before) {
		t.Errorf("left after uninstall: %q, before: %q", left, before)
	}
}

// everything are the namespace's objects that are not about to go, as KIND/NAME.
func (h *helms) everything() (names []string) {
	h.t.Helper()
	for kind, resource := range kinds {
		list, err := h.Client.Resource(resource).Namespace(namespace).List(context.Background(), metav1.ListOptions{})
		if err != nil {
			h.t.Fatalf("%s: %v", kind, err)
		}
		for _, o := range list.Items {
			if o.GetDeletionTimestamp() == nil {
				names = append(names, kind+"/"+o.GetName())
			}
		}
	}
	slices.Sort(names)
	return names
}

// existingSecret checks that a Secret of the user's own is used as it is, and that one that lacks a key is refused with
// its name.
func existingSecret(t *testing.T, s *kubetest.Server) {
	h := on(t, s)
	defer h.run("uninstall", "bench")
	h.Apply(parse(t, "{apiVersion: v1, kind: Secret, metadata: {name: logins, namespace: bench}, stringData: {password: x, dsn-fast: \"app:x@tcp(mysql-fast:3306)/app\"}}"))
	values := sets([]string{registry, "mysql.enabled=true,mysql.existingSecret=logins"})
	h.refused("mysql.existingSecret: the Secret logins has no key dsn-slow", append([]string{"install", "bench", chart(), "--set=classes={fast,slow}"}, values...)...)
	text := h.run(append([]string{"install", "bench", chart(), "--set=classes={fast}"}, values...)...)
	if strings.Contains(text, "MySQL's password") {
		t.Errorf("the notes speak of a password that the chart did not make:\n%s", text)
	}
	if names := h.everything(); slices.Contains(names, "Secret/mysql") {
		t.Errorf("a Secret is made beside the user's own: %q", names)
	}
	for _, kind := range []string{"Deployment canary-mysql-fast", "StatefulSet mysql-fast"} {
		kind, name, _ := strings.Cut(kind, " ")
		for _, e := range podOf(t, h.get(kind, name)).Spec.Containers[0].Env {
			if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil && e.ValueFrom.SecretKeyRef.Name != "logins" {
				t.Errorf("%s reads the Secret %s", name, e.ValueFrom.SecretKeyRef.Name)
			}
		}
	}
}

// withoutRights installs by an account that has every right in the namespace and none beside: with
// readStorageClasses=false it can, and without it the error names what is missing.
func withoutRights(t *testing.T, s *kubetest.Server) {
	h := on(t, s)
	h.Apply(parse(t, "{apiVersion: v1, kind: ServiceAccount, metadata: {name: tenant, namespace: bench}}"),
		parse(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: tenant, namespace: bench}, rules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]}"),
		parse(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: tenant, namespace: bench}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: tenant},"+
			" subjects: [{kind: ServiceAccount, name: tenant, namespace: bench}]}"))
	h.kubeconfig = []string{"KUBECONFIG=" + h.Kubeconfig(h.Token(namespace, "tenant"))}
	values := sets([]string{registry, two, everyKind, "soak.enabled=true,matrix.experiment=wal"})
	h.refused("storageclasses", append([]string{"install", "bench", chart()}, values...)...)
	h.run(append([]string{"install", "bench", chart(), "--set=readStorageClasses=false"}, values...)...)
	h.run("uninstall", "bench")
}

// TestPackage makes the archive of the chart: what the checkout has as links to the other chart is there as files.
func TestPackage(t *testing.T) {
	dir := t.TempDir()
	if text, err := kubetest.Helm(t, nil, "package", chart(), "--destination="+dir); err != nil {
		t.Fatal(text)
	}
	archives, _ := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if len(archives) != 1 {
		t.Fatalf("archives: %v", archives)
	}
	if info, err := os.Stat(archives[0]); err != nil || info.Size() > 100_000 {
		t.Errorf("the archive: %v, %v", info, err)
	}
	text, err := kubetest.Helm(t, nil, append([]string{"template", "bench", archives[0], "--values=" + chart("dalibo.yaml")}, sets([]string{registry, two})...)...)
	if err != nil || !strings.Contains(text, "kind: Job") {
		t.Errorf("%v: %.500s", err, text)
	}
}
