{{/* The namespace of the programs that look at the node: they need the PodSecurity level "privileged". */}}
{{- define "plumbline.nodeNamespace" -}}
{{- default .Release.Namespace .Values.nodeNamespace -}}
{{- end -}}

{{- define "plumbline.priorityClass" -}}
{{- if .Values.priorityClass.create -}}
priorityClassName: plumbline-node
{{- else if .Values.priorityClass.name -}}
priorityClassName: {{ .Values.priorityClass.name | quote }}
{{- end -}}
{{- end -}}

{{/* Longhorn's data paths, below /host in the exporter; what the nodes mount there later is seen, too. And its certificates. */}}
{{- define "plumbline.longhornMounts" -}}
{{- range $i, $path := .Values.longhorn.dataPaths }}
- {name: data-{{ $i }}, mountPath: {{ printf "/host%s" $path | quote }}, readOnly: true, mountPropagation: HostToContainer}
{{- end }}
{{- if .Values.longhorn.node.grpcTLSSecret }}
- {name: grpc-tls, mountPath: /etc/longhorn-grpc-tls, readOnly: true}
{{- end }}
{{- end -}}

{{/* Only the folder that Longhorn itself makes on each of its nodes is made where it is missing: a replica's disk that is not mounted must
not look as if it were. (A type left empty makes folders, too: the container runtime does.) */}}
{{- define "plumbline.longhornVolumes" -}}
{{- range $i, $path := .Values.longhorn.dataPaths }}
- {name: data-{{ $i }}, hostPath: {path: {{ $path | quote }}, type: {{ ternary "DirectoryOrCreate" "Directory" (eq (trimSuffix "/" $path) "/var/lib/longhorn") }}}}
{{- end }}
{{- with .Values.longhorn.node.grpcTLSSecret }}
- {name: grpc-tls, secret: {secretName: {{ . | quote }} }}
{{- end }}
{{- end -}}

{{- define "plumbline.mayastorURL" -}}
{{- default (printf "http://openebs-api-rest.%s:8081" .Values.openebs.namespace) .Values.openebs.mayastor.url -}}
{{- end -}}

{{/* Where Mayastor's REST API is, for a network policy: in OpenEBS' namespace, or anywhere if its address is given. */}}
{{- define "plumbline.mayastorPeers" -}}
{{- if not .Values.openebs.mayastor.url }}
- namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: {{ .Values.openebs.namespace }}}}
{{- end }}
{{- end -}}

{{/* The ports of Mayastor's REST API, for a network policy, which sees a pod's port and not its Service's: the address' own, and where one is
given, as that of another Service, that on which Mayastor's pods listen: 8081, with TLS 8080. */}}
{{- define "plumbline.mayastorPorts" -}}
{{- $url := include "plumbline.mayastorURL" . -}}
{{- $pods := ternary "8080" "8081" (hasPrefix "https:" $url) -}}
{{- range list (include "plumbline.urlPort" $url) $pods | uniq }}
- {port: {{ . }}, protocol: TCP}
{{- end }}
{{- end -}}

{{/* The API server's ports, as a network policy's rule has them. None are refused: a rule takes that for every port. */}}
{{- define "plumbline.apiServerPorts" -}}
{{- range required "networkPolicies.apiServerPorts is missing: name the ports of your API server, or upgrade with --reset-then-reuse-values to have the default" .Values.networkPolicies.apiServerPorts }}
- {port: {{ . }}, protocol: TCP}
{{- end }}
{{- end -}}

{{/* The port of an address: its own, or that of its scheme. Called with the address. */}}
{{- define "plumbline.urlPort" -}}
{{- $url := urlParse . -}}
{{- regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "443" "80" (eq $url.scheme "https")) -}}
{{- end -}}

{{/* The files of rules for the kind of histograms that is stored. */}}
{{- define "plumbline.rules" -}}
{{- if eq .Values.prometheus.histograms "native" }}rules/*.rules.yaml{{ else }}rules/{{ .Values.prometheus.histograms }}/*.rules.yaml{{ end }}
{{- end }}
