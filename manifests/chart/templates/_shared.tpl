{{/* Templates that this chart and manifests/bench share. They read values that both charts have. */}}

{{/*
plumbline.image: registry/name:tag, or registry/name@digest where a digest is given.
Called with (dict "root" $ "name" "agent"). Without a registry it fails: an image of the same name on a public registry
is not ours.
*/}}
{{- define "plumbline.image" -}}
{{- $image := .root.Values.image -}}
{{- $registry := required "image.registry is empty: give the registry that your images were pushed to, for example --set image.registry=registry.example.org/plumbline, or upgrade with --reset-then-reuse-values to keep the one given before" $image.registry -}}
{{- $digest := get (default (dict) $image.digests) .name -}}
{{- if $digest -}}
{{- printf "%s/%s@%s" (trimSuffix "/" $registry) .name $digest -}}
{{- else -}}
{{- $tag := default .root.Chart.AppVersion $image.tag -}}
{{- if eq $tag "latest" -}}
{{- fail "image.tag is latest: a node that has an older image of that name would keep it; give a version" -}}
{{- end -}}
{{- printf "%s/%s:%s" (trimSuffix "/" $registry) .name $tag -}}
{{- end -}}
{{- end -}}

{{- define "plumbline.pullSecrets" -}}
{{- with .Values.image.pullSecrets -}}
imagePullSecrets:
{{- range . }}
  - name: {{ . | quote }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* The nodes for the pods that run once in the cluster. The reused values of an older chart have no placement: Linux. */}}
{{- define "plumbline.placement" -}}
{{- $placement := default (dict) .Values.placement -}}
nodeSelector:
  {{- toYaml (default (dict "kubernetes.io/os" "linux") $placement.nodeSelector) | nindent 2 }}
{{- with $placement.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $placement.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $placement.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* Labels of an object and of its pods. Called with the program's name. */}}
{{- define "plumbline.labels" -}}
app.kubernetes.io/name: {{ . }}
app.kubernetes.io/part-of: plumbline
{{- end -}}

{{/* Labels by which Prometheus selects monitors and rules. */}}
{{- define "plumbline.monitorLabels" -}}
{{- with .Values.prometheus.release }}
release: {{ . | quote }}
{{- end }}
{{- with .Values.prometheus.labels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
The annotations of a pod, by which a Prometheus without the operator finds it. Called with (dict "root" $ "port" 9437).
*/}}
{{- define "plumbline.scrapeAnnotations" -}}
{{- if not .root.Values.prometheus.operator }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ .port | quote }}
{{- end }}
{{- with .root.Values.podAnnotations }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Security contexts of a pod, and of its container, that the PodSecurity level "restricted" admits. */}}
{{- define "plumbline.podSecurity" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{- define "plumbline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* What a PodMonitor's endpoint drops or changes of the metrics that it scrapes. */}}
{{- define "plumbline.metricRelabelings" -}}
{{- with .Values.prometheus.metricRelabelings -}}
metricRelabelings:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* Egress rules of a network policy for DNS: kube-system, NodeLocal DNSCache's address, and OpenShift's own DNS. */}}
{{- define "plumbline.dnsEgress" -}}
- to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: kube-system
    - ipBlock:
        cidr: 169.254.20.10/32
  ports:
    - {port: 53, protocol: UDP}
    - {port: 53, protocol: TCP}
- to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: openshift-dns
  ports:
    - {port: 5353, protocol: UDP}
    - {port: 5353, protocol: TCP}
{{- end -}}

{{/* Egress rules for Prometheus' namespace, as its pods may listen on another port than its Service, and for DNS. */}}
{{- define "plumbline.prometheusEgress" -}}
- to:
    - namespaceSelector:
        matchLabels:
          kubernetes.io/metadata.name: {{ .Values.prometheus.namespace }}
{{ include "plumbline.dnsEgress" . }}
{{- end -}}

{{/*
Prometheus' address. The operator's own Service has the same name in every release; the Service of the chart without the
operator is RELEASE-server.
*/}}
{{- define "plumbline.prometheusURL" -}}
{{- $default := ternary "http://prometheus-operated.%s:9090" "http://prometheus-server.%s" .Values.prometheus.operator -}}
{{- default (printf $default .Values.prometheus.namespace) .Values.prometheus.url -}}
{{- end -}}
