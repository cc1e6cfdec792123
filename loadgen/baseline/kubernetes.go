package baseline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
)

const (
	// previousAnnotation has the previous pins, the newest first, as a list in JSON.
	previousAnnotation = "plumbline.io/previous"
	// measuredAnnotation lists what the pins rest on, a line each.
	measuredAnnotation = "plumbline.io/measured"
	// rulesLabel is the version of the rules that the pins are for.
	rulesLabel = "plumbline.io/rules-version"
	// mostPrevious bounds the annotation; the API server takes 256 KiB for all of an object's.
	mostPrevious = 128 << 10
)

var prometheusRules = schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules"}

// previous are pins that were replaced.
type previous struct {
	Measured string  `json:"measured"`
	Groups   []group `json:"groups"`
}

// ToPrometheusRule writes the pins to a PrometheusRule that is there already, as the right to make one
// cannot be given for one name alone. name is NAMESPACE/NAME, or a name in the pod's own
// namespace. An annotation keeps as many of the previous pins as History allows and as there is room for.
func (o Output) ToPrometheusRule(ctx context.Context, config *rest.Config, name string, baselines []Baseline, at time.Time) error {
	objects, name, err := reach(config, name)
	if err != nil {
		return err
	}
	err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
		object, err := objects.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if err := o.replace(object, baselines, at); err != nil {
			return err
		}
		_, err = objects.Update(ctx, object, metav1.UpdateOptions{FieldManager: "loadgen-baseline"})
		return err
	})
	if err != nil {
		return fmt.Errorf("PrometheusRule %s: %w", name, err)
	}
	return nil
}

// Reach returns why the pins could not be written to a PrometheusRule. It is called before a day of measuring.
func Reach(ctx context.Context, config *rest.Config, name string) error {
	objects, object, err := reach(config, name)
	if err == nil {
		_, err = objects.Get(ctx, object, metav1.GetOptions{})
	}
	if err != nil {
		return fmt.Errorf("PrometheusRule %s: %w", name, err)
	}
	return nil
}

func reach(config *rest.Config, name string) (dynamic.ResourceInterface, string, error) {
	namespace, name, err := place(name)
	if err != nil {
		return nil, "", err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, "", err
	}
	return client.Resource(prometheusRules).Namespace(namespace), name, nil
}

// replace sets the pins into the object.
func (o Output) replace(object *unstructured.Unstructured, baselines []Baseline, at time.Time) error {
	var old struct {
		Spec ruleFile `json:"spec"`
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &old); err != nil {
		return fmt.Errorf("cannot read its rules: %w", err)
	}
	if err := slower(old.Spec, baselines, o.RefuseSlower); err != nil {
		return err
	}
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	var all []previous
	if len(old.Spec.Groups) > 0 {
		all = append(all, previous{annotations[measuredAnnotation], old.Spec.Groups})
	}
	var before []previous
	// What cannot be read is somebody else's, and is dropped.
	if json.Unmarshal([]byte(annotations[previousAnnotation]), &before) == nil {
		all = append(all, before...)
	}
	text, err := fit(all, o.History)
	if err != nil {
		return err
	}
	if delete(annotations, previousAnnotation); text != "" {
		annotations[previousAnnotation] = text
	}
	annotations[measuredAnnotation] = strings.Join(summary(baselines, o.Version, at), "\n")
	object.SetAnnotations(annotations)
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[rulesLabel] = RulesVersion
	object.SetLabels(labels)
	pinned := pins(baselines, at)
	spec, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&pinned)
	if err != nil {
		return err
	}
	object.Object["spec"] = spec
	return nil
}

// fit returns the newest of the previous pins as JSON: at most n, and as many as there is room for.
func fit(all []previous, n int) (string, error) {
	for n = min(n, len(all)); n > 0; n-- {
		text, err := json.Marshal(all[:n])
		if err != nil {
			return "", err
		}
		if len(text) <= mostPrevious {
			return string(text), nil
		}
	}
	return "", nil
}

// ownNamespace is where a pod finds the name of its namespace.
const ownNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// place splits NAMESPACE/NAME.
func place(name string) (namespace, object string, err error) {
	namespace, object, ok := strings.Cut(name, "/")
	if ok && namespace != "" && object != "" && !strings.Contains(object, "/") {
		return namespace, object, nil
	}
	if ok || name == "" {
		return "", "", fmt.Errorf("--kubernetes.prometheusrule=%s: want NAMESPACE/NAME, or in a pod NAME", name)
	}
	text, err := os.ReadFile(ownNamespace)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", fmt.Errorf("--kubernetes.prometheusrule=%s: want NAMESPACE/NAME, as this is no pod with a service account", name)
	}
	return strings.TrimSpace(string(text)), name, err
}
