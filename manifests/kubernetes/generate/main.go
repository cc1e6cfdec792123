// Command generate writes the Kubernetes objects that carry Plumbline's rules and dashboards:
// a PrometheusRule for each file in rules/ and rules/optional/, a ConfigMap for each in dashboards/; and, as values
// for kube-prometheus-stack, the lab's Alertmanager configuration. The files themselves are kept
// as they are, comments included, only set in.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run . -root ../../..

// kind is one kind of file that becomes an object.
type kind struct {
	from   string // pattern, from the root of the project
	to     string // folder below manifests/kubernetes/base
	suffix string // what a file's name ends in; the rest is the object's name
	header string // the object before the file's text; %s is its name
	indent string
}

// rules is the object around a file of rules.
const rules = `apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: plumbline-%s
  namespace: plumbline
spec:
`

// board is the object around a dashboard.
const board = `apiVersion: v1
kind: ConfigMap
metadata:
  name: plumbline-dashboard-%[1]s
  namespace: plumbline
  labels:
    grafana_dashboard: "1"
  annotations:
    grafana_folder: Plumbline
data:
  plumbline-%[1]s.json: |
`

const notice = "# Made by manifests/kubernetes/generate; change the file it was made from.\n"

var kinds = []kind{{
	from: "rules/*.rules.yaml", to: "rules", suffix: ".rules.yaml", indent: "  ",
	header: rules,
}, {
	// The same under the same names, in the place of base's: where native histograms are not stored, or some are not.
	from: "rules/either/*.rules.yaml", to: "../optional/rules-either", suffix: ".rules.yaml", indent: "  ",
	header: rules,
}, {
	from: "rules/classic/*.rules.yaml", to: "../optional/rules-classic", suffix: ".rules.yaml", indent: "  ",
	header: rules,
}, {
	from: "dashboards/classic/*.json", to: "../optional/dashboards-classic", suffix: ".json", indent: "    ",
	header: board,
}, {
	// What kube-prometheus-stack has already: beside base, to be applied by those who lack it.
	from: "rules/optional/*.rules.yaml", to: "../optional/rules", suffix: ".rules.yaml", indent: "  ",
	header: `apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: plumbline-optional-%s
  namespace: plumbline
spec:
`,
}, {
	// Grafana's sidecar in kube-prometheus-stack takes ConfigMaps with this label and annotation.
	from: "dashboards/*.json", to: "dashboards", suffix: ".json", indent: "    ",
	header: board,
}}

func main() {
	root := flag.String("root", ".", "Root of the checkout.")
	out := flag.String("out", "", "Folder to write to, with kube-prometheus-stack beside it; manifests/kubernetes/base of the checkout if empty.")
	flag.Parse()
	if *out == "" {
		*out = filepath.Join(*root, "manifests", "kubernetes", "base")
	}
	if err := writeAlertmanager(*root, *out); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
	for _, k := range kinds {
		if err := k.write(*root, *out); err != nil {
			fmt.Fprintln(os.Stderr, "generate:", err)
			os.Exit(1)
		}
	}
}

// alertmanagerHeader is what the chart wants around Alertmanager's own configuration. The chart
// merges it into its own: its receivers and routes are lists, which are replaced as a whole.
const alertmanagerHeader = `# Routing and inhibition for kube-prometheus-stack: helm upgrade … -f values.yaml -f alertmanager.yaml. Give the receivers
# their integrations first: as they are they send nothing, neither Plumbline's alerts nor the chart's own.
alertmanager:
  config:
`

// alertmanagerFooter are the chart's own inhibitions, which that replaces, too.
const alertmanagerFooter = `      # The chart's own: of one alert the worse, and its notes only beside what is no note.
      - source_matchers: [severity="critical"]
        target_matchers: [severity=~"warning|info"]
        equal: [namespace, alertname]
      - source_matchers: [severity="warning"]
        target_matchers: [severity="info"]
        equal: [namespace, alertname]
      - source_matchers: [alertname="InfoInhibitor"]
        target_matchers: [severity="info"]
        equal: [namespace]
`

// writeAlertmanager sets the lab's configuration into the chart's values, beside base.
func writeAlertmanager(root, out string) error {
	text, err := os.ReadFile(filepath.Join(root, "manifests", "lab", "monitoring", "alertmanager.yml"))
	if err != nil {
		return err
	}
	dir := filepath.Join(filepath.Dir(out), "kube-prometheus-stack")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	k := kind{header: strings.ReplaceAll(alertmanagerHeader, "%", "%%") + "%.0s", indent: "    "}
	return os.WriteFile(filepath.Join(dir, "alertmanager.yaml"), append(k.object("", text), alertmanagerFooter...), 0o644)
}

// write makes the kind's folder anew, so that a file that is gone takes its object with it.
func (k kind) write(root, out string) error {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(k.from)))
	if err != nil {
		return err
	}
	dir := filepath.Join(out, k.to)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	names := []string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(strings.TrimSuffix(filepath.Base(file), k.suffix), "plumbline-")
		target := name + ".yaml"
		if err := os.WriteFile(filepath.Join(dir, target), k.object(name, text), 0o644); err != nil {
			return err
		}
		names = append(names, target)
	}
	kustomization := notice + "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: plumbline\nresources:\n"
	for _, name := range names {
		kustomization += "  - " + name + "\n"
	}
	if len(names) == 0 {
		kustomization = strings.TrimSuffix(kustomization, "\n") + " []\n"
	}
	return os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o644)
}

// object sets a file's text into its object.
func (k kind) object(name string, text []byte) []byte {
	var b bytes.Buffer
	b.WriteString(notice)
	fmt.Fprintf(&b, k.header, strings.ReplaceAll(name, "_", "-"))
	for line := range strings.Lines(string(text)) {
		if strings.TrimSpace(line) != "" {
			b.WriteString(k.indent)
		}
		b.WriteString(line)
	}
	if !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	return b.Bytes()
}
