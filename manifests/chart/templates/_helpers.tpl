{{/* The namespace of the programs that measure the node. They need the PodSecurity level "privileged". */}}
{{- define "plumbline.nodeNamespace" -}}
{{- default .Release.Namespace .Values.nodeNamespace -}}
{{- end -}}

{{/* The nodes and the priority of a program on each node. Called with (dict "root" $ "program" .Values.agent). */}}
{{- define "plumbline.nodePlacement" -}}
{{- with .root.Values.priorityClass -}}
{{- if or .create .name -}}
priorityClassName: {{ ternary "plumbline-node" (quote .name) .create }}
{{ end -}}
{{- end -}}
nodeSelector:
  {{- toYaml .program.nodeSelector | nindent 2 }}
{{- with .root.Values.nodeAffinity }}
affinity:
  nodeAffinity:
    {{- toYaml . | nindent 4 }}
{{- end }}
{{- with .program.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Probes of an exporter that listens as soon as it starts. */}}
{{- define "plumbline.probes" -}}
livenessProbe:
  httpGet:
    path: /-/healthy
    port: metrics
  periodSeconds: 20
  timeoutSeconds: 5
readinessProbe:
  httpGet:
    path: /-/healthy
    port: metrics
  periodSeconds: 10
  timeoutSeconds: 5
{{- end -}}

{{/*
The Deployment and the account of a program that runs once in the cluster. Called with a dict: root, name, port, args,
memoryLimit, resources, and maybe alone (never two at once), container and image (else they have the program's name).
*/}}
{{- define "plumbline.program" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "plumbline.labels" .name | nindent 4 }}
spec:
  replicas: 1
  {{- if .alone }}
  # Two at once would expose every series twice.
  strategy:
    type: Recreate
  {{- end }}
  selector:
    matchLabels:
      app.kubernetes.io/name: {{ .name }}
  template:
    metadata:
      labels:
        {{- include "plumbline.labels" .name | nindent 8 }}
      annotations:
        {{- include "plumbline.scrapeAnnotations" . | trim | nindent 8 }}
    spec:
      serviceAccountName: {{ .name }}
      {{- include "plumbline.pullSecrets" .root | trim | nindent 6 }}
      {{- include "plumbline.placement" .root | nindent 6 }}
      securityContext:
        {{- include "plumbline.podSecurity" . | nindent 8 }}
      containers:
        - name: {{ default .name .container }}
          image: {{ include "plumbline.image" (dict "root" .root "name" (default .name .image)) }}
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args:
            {{- range .args }}
            - {{ . }}
            {{- end }}
          env:
            - name: GOMEMLIMIT
              value: {{ .memoryLimit }}
          ports:
            - name: metrics
              containerPort: {{ .port }}
          {{- include "plumbline.probes" . | nindent 10 }}
          resources:
            {{- toYaml .resources | nindent 12 }}
          securityContext:
            {{- include "plumbline.containerSecurity" . | nindent 12 }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "plumbline.labels" .name | nindent 4 }}
{{- end -}}

{{/* The relabeling that gives the series of a pod the name of its node. */}}
{{- define "plumbline.nodeLabel" -}}
- sourceLabels: [__meta_kubernetes_pod_node_name]
  targetLabel: node
{{- end -}}

{{/*
The egress rule of a network policy for the API server, which is no pod: no selector finds it, and only its port restricts
the rule. A rule without ports would allow every port, so an empty value is an error.
*/}}
{{- define "plumbline.apiServerEgress" -}}
- ports:
    {{- range required "networkPolicies.apiServerPorts is missing: name the ports of your API server, or upgrade with --reset-then-reuse-values to have the default" .Values.networkPolicies.apiServerPorts }}
    - {port: {{ . }}, protocol: TCP}
    {{- end }}
{{- end -}}

{{/* The port of an address, or that of its scheme. Called with the address. */}}
{{- define "plumbline.urlPort" -}}
{{- $url := urlParse . -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end -}}

{{/*
The PodMonitor of an exporter that a storage backend brings along. Called with a dict: root, name, namespace, pods (the
labels of its pods), port, and maybe fromPod (labels of its series, from these labels of the pod) and fixed (labels, and
their values).
*/}}
{{- define "plumbline.backendMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    app.kubernetes.io/part-of: plumbline
    {{- include "plumbline.monitorLabels" .root | trim | nindent 4 }}
spec:
  namespaceSelector:
    matchNames: [{{ .namespace }}]
  selector:
    matchLabels:
      {{- toYaml .pods | nindent 6 }}
  podMetricsEndpoints:
    - portNumber: {{ .port }}
      honorLabels: true
      relabelings:
        {{- range $label, $from := .fromPod }}
        - sourceLabels: [__meta_kubernetes_pod_label_{{ $from }}]
          targetLabel: {{ $label }}
        {{- end }}
        {{- range $label, $value := .fixed }}
        - targetLabel: {{ $label }}
          replacement: {{ $value }}
        {{- end }}
        {{- include "plumbline.nodeLabel" .root | nindent 8 }}
        - action: labeldrop
          regex: pod|container|endpoint|namespace
      {{- include "plumbline.metricRelabelings" .root | nindent 6 }}
{{- end -}}
