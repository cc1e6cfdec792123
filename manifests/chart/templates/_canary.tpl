{{/*
Canaries and baselines of this chart and of manifests/bench. plumbline.canary and plumbline.baseline are called with
(dict "root" $ "canary" $c), where $c is as an item of the value canaries. Resources are .Values.canary's and
.Values.baseline's.
*/}}

{{- define "plumbline.canary" -}}
{{- $root := .root -}}
{{- $c := .canary -}}
{{- $name := printf "canary-%s" $c.name -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ default $root.Release.Namespace $c.namespace }}
  labels:
    {{- include "plumbline.labels" "plumbline-canary" | nindent 4 }}
    app.kubernetes.io/instance: {{ $name }}
spec:
  replicas: 1
  # Two canaries at once would write twice the rate.
  strategy:
    type: Recreate
  selector:
    matchLabels:
      app.kubernetes.io/name: plumbline-canary
      app.kubernetes.io/instance: {{ $name }}
  template:
    metadata:
      labels:
        {{- include "plumbline.labels" "plumbline-canary" | nindent 8 }}
        app.kubernetes.io/instance: {{ $name }}
        # The monitor selects by it. It is not among the Deployment's matchLabels, which cannot change.
        plumbline.io/release: {{ $root.Release.Name | quote }}
      annotations:
        {{- include "plumbline.scrapeAnnotations" (dict "root" $root "port" 9700) | trim | nindent 8 }}
    spec:
      automountServiceAccountToken: false
      {{- include "plumbline.pullSecrets" $root | trim | nindent 6 }}
      {{- include "plumbline.placement" $root | nindent 6 }}
      securityContext:
        {{- include "plumbline.podSecurity" . | nindent 8 }}
      containers:
        - name: canary
          image: {{ include "plumbline.image" (dict "root" $root "name" "loadgen") }}
          imagePullPolicy: {{ $root.Values.image.pullPolicy }}
          args:
            - canary
            - --web.listen-address=:9700
            {{- include "plumbline.canaryArgs" $c | nindent 12 }}
          env:
            {{- include "plumbline.canaryEnv" $c | nindent 12 }}
          ports:
            - name: metrics
              containerPort: 9700
          readinessProbe:
            httpGet:
              path: /-/healthy
              port: metrics
            periodSeconds: 10
            timeoutSeconds: 5
          resources:
            {{- toYaml $root.Values.canary.resources | nindent 12 }}
          securityContext:
            {{- include "plumbline.containerSecurity" . | nindent 12 }}
{{- end -}}

{{/* The arguments of loadgen that name a canary's database. Called with the canary. */}}
{{- define "plumbline.canaryArgs" -}}
- --database={{ .database }}
- --storageclass={{ .storageclass }}
- --rate={{ default 10 .rate }}
- --engine={{ eq (default "postgresql" .engine) "mysql" | ternary "mysql" "postgres" }}
{{- end -}}

{{/* The environment of loadgen, with the database's address and login. Called with the canary. */}}
{{- define "plumbline.canaryEnv" -}}
- name: NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
- name: LOADGEN_DSN
  valueFrom:
    secretKeyRef:
      name: {{ .dsnSecret.name }}
      key: {{ default "uri" .dsnSecret.key }}
{{- end -}}

{{/* What pins a canary. Its account may write that canary's pin and nothing else. */}}
{{- define "plumbline.baseline" -}}
{{- $root := .root -}}
{{- $c := .canary -}}
{{- $name := printf "baseline-%s" $c.name -}}
{{- $pin := printf "plumbline-baseline-%s" $c.name -}}
{{- $namespace := default $root.Release.Namespace $c.namespace -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "plumbline.labels" "plumbline-baseline" | nindent 4 }}
    app.kubernetes.io/instance: {{ $name }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "plumbline.labels" "plumbline-baseline" | nindent 4 }}
    app.kubernetes.io/instance: {{ $name }}
rules:
  - apiGroups: [monitoring.coreos.com]
    resources: [prometheusrules]
    resourceNames: [{{ $pin }}]
    verbs: [get, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "plumbline.labels" "plumbline-baseline" | nindent 4 }}
    app.kubernetes.io/instance: {{ $name }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
    namespace: {{ $namespace }}
---
# The pin. The job writes its spec; the chart leaves that alone on an upgrade.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ $pin }}
  namespace: {{ $namespace }}
  labels:
    {{- include "plumbline.labels" "plumbline-baseline" | nindent 4 }}
    app.kubernetes.io/instance: {{ $name }}
    {{- include "plumbline.monitorLabels" $root | trim | nindent 4 }}
spec: {}
---
apiVersion: batch/v1
kind: CronJob
metadata:
  name: {{ $name }}
  namespace: {{ $namespace }}
  labels:
    {{- include "plumbline.labels" "plumbline-baseline" | nindent 4 }}
    app.kubernetes.io/instance: {{ $name }}
spec:
  suspend: {{ $root.Values.baseline.suspend }}
  schedule: {{ $root.Values.baseline.schedule | quote }}
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      backoffLimit: 0
      ttlSecondsAfterFinished: 604800 # a week, to read its log
      template:
        metadata:
          labels:
            {{- include "plumbline.labels" "plumbline-baseline" | nindent 12 }}
            app.kubernetes.io/instance: {{ $name }}
          {{- with $root.Values.podAnnotations }}
          annotations:
            {{- toYaml . | nindent 12 }}
          {{- end }}
        spec:
          serviceAccountName: {{ $name }}
          restartPolicy: Never
          {{- include "plumbline.pullSecrets" $root | trim | nindent 10 }}
          {{- include "plumbline.placement" $root | nindent 10 }}
          securityContext:
            {{- include "plumbline.podSecurity" . | nindent 12 }}
          containers:
            - name: baseline
              image: {{ include "plumbline.image" (dict "root" $root "name" "loadgen") }}
              imagePullPolicy: {{ $root.Values.image.pullPolicy }}
              args:
                - baseline
                - --kubernetes.prometheusrule={{ $pin }}
                {{- include "plumbline.canaryArgs" $c | nindent 16 }}
                - --duration={{ $root.Values.baseline.duration }}
                - --refuse-slower={{ $root.Values.baseline.refuseSlower }}
                {{- range $root.Values.baseline.extraArgs }}
                - {{ . | quote }}
                {{- end }}
              env:
                {{- include "plumbline.canaryEnv" $c | nindent 16 }}
              resources:
                {{- toYaml $root.Values.baseline.resources | nindent 16 }}
              securityContext:
                {{- include "plumbline.containerSecurity" . | nindent 16 }}
{{- end -}}

{{/* The namespaces of the canaries, as a list; the release's if the value canaries names none. */}}
{{- define "plumbline.canaryNamespaces" -}}
{{- $namespaces := list -}}
{{- range .Values.canaries -}}
{{- $namespaces = append $namespaces (default $.Release.Namespace .namespace) -}}
{{- end -}}
{{- $namespaces | default (list .Release.Namespace) | uniq | sortAlpha | toYaml -}}
{{- end -}}

{{/* Prometheus keeps the labels of a canary's metrics, so the monitor selects the canaries of this release alone. */}}
{{- define "plumbline.canariesMonitor" -}}
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata:
  name: plumbline-canary
  namespace: {{ .Release.Namespace }}
  labels:
    app.kubernetes.io/part-of: plumbline
    {{- include "plumbline.monitorLabels" . | trim | nindent 4 }}
spec:
  namespaceSelector:
    matchNames:
      {{- include "plumbline.canaryNamespaces" . | nindent 6 }}
  selector:
    matchLabels:
      app.kubernetes.io/name: plumbline-canary
      plumbline.io/release: {{ .Release.Name | quote }}
  scrapeNativeHistograms: {{ ne .Values.prometheus.histograms "classic" }}
  podMetricsEndpoints:
    - port: metrics
      honorLabels: true
      relabelings:
        - action: labeldrop
          regex: pod|container|endpoint
      {{- include "plumbline.metricRelabelings" . | nindent 6 }}
{{- end -}}
