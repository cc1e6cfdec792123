//go:build e2e

package e2e

// provisioner is Rancher's local-path-provisioner, as its own manifest has it, with local images.
const provisioner = `
apiVersion: v1
kind: Namespace
metadata: {name: local-path-storage}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: provisioner, namespace: local-path-storage}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: local-path-provisioner}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: provisioner, namespace: local-path-storage}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: config, namespace: local-path-storage}
data:
  config.json: |
    {"storageClassConfigs": {
      "local-path": {"nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["{{.Folder}}/volumes"]}]},
      "held": {"nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["{{.Folder}}/held"]}]}
    }}
  setup: |
    #!/bin/sh
    mkdir -m 0777 -p "$VOL_DIR"
  teardown: |
    #!/bin/sh
    rm -rf "$VOL_DIR"
  helperPod.yaml: |
    apiVersion: v1
    kind: Pod
    metadata: {name: helper}
    spec:
      containers: [{name: helper, image: e2e/busybox:latest, imagePullPolicy: Never}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: provisioner, namespace: local-path-storage}
spec:
  selector: {matchLabels: {app: provisioner}}
  template:
    metadata: {labels: {app: provisioner}}
    spec:
      serviceAccountName: provisioner
      containers:
        - name: provisioner
          image: e2e/local-path-provisioner:latest
          imagePullPolicy: Never
          args: [start, --config=/config/config.json, --service-account-name=provisioner, --helper-image=e2e/busybox:latest, --configmap-name=config]
          env: [{name: POD_NAMESPACE, value: local-path-storage}, {name: CONFIG_MOUNT_PATH, value: /config/}]
          volumeMounts: [{name: config, mountPath: /config}]
      volumes: [{name: config, configMap: {name: config}}]
`

// heldClass is the storage class whose disk the test can hold back. Its volumes are of the kind
// local, of which the kubelet reports how full they are.
const heldClass = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: held, annotations: {defaultVolumeType: local}}
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
`

// prometheus is the operator, an Alertmanager and a Prometheus that takes all rules and monitors, as
// kube-prometheus-stack's does with our values.
const prometheus = `
apiVersion: v1
kind: Namespace
metadata: {name: monitoring}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: operator, namespace: monitoring}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus, namespace: monitoring}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: operator, namespace: monitoring}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: prometheus}
rules:
  - {apiGroups: [""], resources: [pods, services, endpoints, nodes, namespaces, nodes/metrics], verbs: [get, list, watch]}
  - {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: prometheus}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: monitoring}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: operator, namespace: monitoring}
spec:
  selector: {matchLabels: {app: operator}}
  template:
    metadata: {labels: {app: operator}}
    spec:
      serviceAccountName: operator
      containers:
        - name: operator
          image: e2e/prometheus-operator:latest
          imagePullPolicy: Never
          args: [--kubelet-service=kube-system/kubelet, --kubelet-endpoints=true, --prometheus-config-reloader=e2e/prometheus-config-reloader:latest, --config-reloader-cpu-request=0, --config-reloader-memory-request=0]
---
apiVersion: monitoring.coreos.com/v1
kind: Prometheus
metadata: {name: e2e, namespace: monitoring}
spec:
  image: e2e/prometheus-kubernetes:latest
  imagePullPolicy: Never
  version: v3.10.0
  serviceAccountName: prometheus
  scrapeInterval: 5s
  evaluationInterval: 5s
  podMonitorSelector: {}
  podMonitorNamespaceSelector: {}
  serviceMonitorSelector: {}
  serviceMonitorNamespaceSelector: {}
  ruleSelector: {}
  ruleNamespaceSelector: {}
  alerting: {alertmanagers: [{namespace: monitoring, name: alertmanager-operated, port: web}]}
---
apiVersion: monitoring.coreos.com/v1
kind: Alertmanager
metadata: {name: e2e, namespace: monitoring}
spec:
  image: e2e/alertmanager:latest
  imagePullPolicy: Never
  version: v0.28.0
  configSecret: alertmanager
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: node-exporter, namespace: monitoring}
spec:
  selector: {matchLabels: {app: node-exporter}}
  template:
    metadata: {labels: {app: node-exporter}}
    spec:
      hostNetwork: true
      hostPID: true
      containers:
        - name: node-exporter
          image: e2e/node_exporter:latest
          imagePullPolicy: Never
          args: ['--web.listen-address=:9100', --path.rootfs=/host, '--collector.diskstats.device-exclude=^(z?ram|fd)\d+$']
          ports: [{name: metrics, containerPort: 9100}]
          volumeMounts: [{name: root, mountPath: /host, readOnly: true}]
      volumes: [{name: root, hostPath: {path: /}}]
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: node-exporter, namespace: monitoring}
spec:
  selector: {matchLabels: {app: node-exporter}}
  podMetricsEndpoints:
    - port: metrics
      relabelings: [{sourceLabels: [__meta_kubernetes_pod_node_name], targetLabel: node}]
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: kubelet, namespace: monitoring}
spec:
  namespaceSelector: {matchNames: [kube-system]}
  selector: {matchLabels: {app.kubernetes.io/name: kubelet}}
  endpoints:
    - {port: https-metrics, scheme: https, honorLabels: true, bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token, tlsConfig: {insecureSkipVerify: true}}
    - {port: https-metrics, scheme: https, honorLabels: true, bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token, tlsConfig: {insecureSkipVerify: true}, path: /metrics/cadvisor}
---
# Prometheus and Alertmanager about themselves.
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: prometheus, namespace: monitoring}
spec:
  selector: {matchLabels: {app.kubernetes.io/managed-by: prometheus-operator, app.kubernetes.io/name: prometheus}}
  podMetricsEndpoints: [{port: web}]
`

// hog is a pod that keeps the CPUs busy, and requests so much of them that the databases beside
// it get little. It has a grace period: without one the API forgets a pod before its container has ended, and what then
// gives the pods precedence gives it to the hog, which keeps the container runtime from ever ending it.
const hog = `
apiVersion: v1
kind: Pod
metadata: {name: hog, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: hog
      image: e2e/busybox:latest
      imagePullPolicy: Never
      args: [-c, "for i in 1 2 3 4; do while :; do :; done & done; wait"]
      resources: {requests: {cpu: 500m}}
`
