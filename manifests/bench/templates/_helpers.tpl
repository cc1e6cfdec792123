{{/*
A class as a part of an object's name: a DNS label, short enough for names of Clusters and CronJobs. Called with the class.
*/}}
{{- define "bench.slug" -}}
{{- if regexMatch "^[a-z0-9]([-a-z0-9]{0,26}[a-z0-9])?$" . -}}
{{- . -}}
{{- else -}}
{{- printf "%s-%s" (replace "." "-" . | trunc 19) (sha256sum . | trunc 8) -}}
{{- end -}}
{{- end -}}

{{/* The databases, as a list of what plumbline.canary takes of each. */}}
{{- define "bench.databases" -}}
{{- range $class := .Values.classes }}
{{- $slug := include "bench.slug" $class }}
{{- range $kind := list "postgresql" "postgresqlsync" "mysql" }}
{{- if (get $.Values $kind).enabled }}
- name: {{ $kind }}-{{ $slug }}
  kind: {{ $kind }}
  engine: {{ eq $kind "mysql" | ternary "mysql" "postgresql" }}
  storageclass: {{ $class | quote }}
  namespace: {{ $.Release.Namespace }}
  database: {{ $.Release.Namespace }}/{{ $kind }}-{{ $slug }}
  rate: {{ $.Values.canary.rate }}
  dsnSecret:
    {{- if eq $kind "mysql" }}
    name: {{ include "bench.mysqlSecret" $ }}
    key: {{ printf "dsn-%s" $class | quote }}
    {{- else }}
    name: {{ $kind }}-{{ $slug }}-app # CloudNativePG makes it
    key: uri
    {{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "bench.mysqlSecret" -}}
{{- default "mysql" .Values.mysql.existingSecret -}}
{{- end -}}

{{/*
How many copies a class keeps, and whether it is a control: by the values, or as its StorageClass has it. Called with
(dict "root" $ "class" "longhorn-r3").
*/}}
{{- define "bench.class" -}}
{{- $found := dict -}}
{{- if .root.Values.readStorageClasses -}}
{{- $found = default (dict) (lookup "storage.k8s.io/v1" "StorageClass" "" .class) -}}
{{- end -}}
{{- $metadata := default (dict) $found.metadata -}}
{{- $marks := merge (dict) (default (dict) $metadata.annotations) (default (dict) $metadata.labels) -}}
{{- $marked := eq "true" (get $marks "plumbline.io/control") -}}
{{- $local := has $found.provisioner (list "rancher.io/local-path" "kubernetes.io/no-provisioner") -}}
{{- $control := or (has .class .root.Values.control.storageClasses) $marked $local -}}
{{- $copies := get .root.Values.copies .class -}}
{{- if and $control (not $copies) -}}
{{- $copies = 1 -}}
{{- end -}}
{{- $parameters := default (dict) $found.parameters -}}
{{- range $key := list "numberOfReplicas" "repl" "replicaCount" -}}
{{- $copies = default (get $parameters $key) $copies -}}
{{- end -}}
{{- $type := get $parameters "storage_type" -}}
{{- if hasPrefix "Replica" $type -}}
{{- $copies = default (trimPrefix "Replica" $type) $copies -}}
{{- end -}}
control: {{ $control }}
copies: {{ $copies }}
{{- end -}}

{{/*
The targets of a soak or a matrix, one a class. Called with (dict "root" $ "database" "postgresql" "directory" true):
directory is whether the pod has a volume of each class. bench.dsnVolume has the files of connection strings.
*/}}
{{- define "bench.targets" -}}
{{- $root := .root -}}
{{- $local := "" -}}
targets:
{{- range $class := .root.Values.classes }}
{{- $slug := include "bench.slug" $class }}
{{- $facts := include "bench.class" (dict "root" $root "class" $class) | fromYaml }}
  - storageclass: {{ $class | quote }}
    {{- if and $facts.control (not $local) }}
    {{- $local = $class }}
    local: true
    {{- end }}
    {{- with $facts.copies }}
    replicas: {{ int . }}
    {{- end }}
    {{- if $.directory }}
    directory: /data/{{ $slug }}
    {{- end }}
    {{- if (get $root.Values $.database).enabled }}
    engine: {{ eq $.database "mysql" | ternary "mysql" "postgres" }}
    dsn_file: /dsn/{{ $slug }}
    {{- end }}
{{- end }}
{{- end -}}

{{/*
The connection strings of one database of each class, as files. Called with (dict "root" $ "database" "postgresql").
*/}}
{{- define "bench.dsnVolume" -}}
- name: dsn
  projected:
    defaultMode: 0440
    sources:
      {{- range include "bench.databases" .root | fromYamlArray }}
      {{- if eq .kind $.database }}
      - secret:
          name: {{ .dsnSecret.name }}
          items: [{key: {{ .dsnSecret.key | quote }}, path: {{ include "bench.slug" .storageclass | quote }}}]
      {{- end }}
      {{- end }}
{{- end -}}

{{/* Where pods that make load run: as placement has it, and rather not beside a database, whose CPU they take. */}}
{{- define "bench.loadPlacement" -}}
{{- $apart := `
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector: {matchExpressions: [{key: cnpg.io/cluster, operator: Exists}]}
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector: {matchLabels: {app.kubernetes.io/name: mysql}}
` | fromYaml -}}
{{- $placement := deepCopy .Values.placement -}}
{{- $_ := set $placement "affinity" (mergeOverwrite $apart (default (dict) $placement.affinity)) -}}
{{- include "plumbline.placement" (dict "Values" (dict "placement" $placement)) -}}
{{- end -}}

{{/* The security context of a pod that writes to a volume: loadgen's group. OpenShift gives each namespace its own. */}}
{{- define "bench.volumeSecurity" -}}
{{ include "plumbline.podSecurity" . }}
{{- if not .Values.openshift.enabled }}
fsGroup: 65532
{{- end }}
{{- end -}}

{{/* A pod's own volume of a class. Called with (dict "name" "data" "class" "longhorn-r3" "size" "10Gi"). */}}
{{- define "bench.ephemeral" -}}
- name: {{ .name }}
  ephemeral:
    volumeClaimTemplate:
      metadata:
        labels:
          app.kubernetes.io/part-of: plumbline
      spec:
        storageClassName: {{ .class | quote }}
        accessModes: [ReadWriteOnce]
        resources: {requests: {storage: {{ .size | quote }}}}
{{- end -}}
