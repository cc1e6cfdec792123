// Command generate writes what drops the metrics that nothing reads: a component for kustomize, and a template of the chart.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/plumbline/plumbline/manifests/unread"
)

const component = `# Made by manifests/unread/generate. Prometheus drops what no rule, page or command of Plumbline reads:
# kustomization.yaml: components: [../optional/drop-unread]
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
patches:
  - target: {kind: PodMonitor}
    patch: |-
      - op: add
        path: /spec/podMetricsEndpoints/0/metricRelabelings
        value:
          - action: drop
            sourceLabels: [__name__]
            regex: %s
`

const template = `{{/* Made by manifests/unread/generate. */}}
{{- define "plumbline.metricRelabelings" -}}
{{- if eq .Values.prometheus.metrics "read" -}}
- action: drop
  sourceLabels: [__name__]
  regex: %s
{{- end -}}
{{- end -}}
`

func main() {
	root := flag.String("root", ".", "Root of the checkout.")
	out := flag.String("out", "", "Folder that stands for manifests of the checkout; that itself if empty.")
	flag.Parse()
	if *out == "" {
		*out = filepath.Join(*root, "manifests")
	}
	pattern, err := unread.Pattern(*root)
	for path, text := range map[string]string{"kubernetes/optional/drop-unread/kustomization.yaml": component, "chart/templates/_unread.tpl": template} {
		if err == nil {
			path = filepath.Join(*out, path)
			err = errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, fmt.Appendf(nil, text, pattern), 0o644))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "manifests/unread/generate:", err)
		os.Exit(1)
	}
}
