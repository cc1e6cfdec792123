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
  config.json: '{"nodePathMap": [{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": ["{{.Folder}}/volumes"]}]}'
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

// prometheus is the operator and a Prometheus that takes all rules and monitors, as
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
rules: [{apiGroups: [""], resources: [pods, services, endpoints, nodes, namespaces], verbs: [get, list, watch]}, {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}]
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
          args: [--prometheus-config-reloader=e2e/prometheus-config-reloader:latest, --config-reloader-cpu-request=0, --config-reloader-memory-request=0]
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
`

// database is a PostgreSQL on a claim of class local-path, and a canary on it.
const database = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: shop}
spec:
  clusterIP: 10.86.0.100
  selector: {app: shop}
  ports: [{port: 5432}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: shop, namespace: shop}
spec:
  serviceName: shop
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 10
      containers:
        - name: postgresql
          image: e2e/postgresql:latest
          imagePullPolicy: Never
          readinessProbe: {tcpSocket: {port: 5432}, periodSeconds: 2}
          volumeMounts: [{name: data, mountPath: /data}, {name: tmp, mountPath: /tmp}, {name: shm, mountPath: /dev/shm}]
      volumes: [{name: tmp, emptyDir: {}}, {name: shm, emptyDir: {medium: Memory}}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {storageClassName: local-path, accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: canary, namespace: shop}
spec:
  selector: {matchLabels: {plumbline: load}}
  template:
    metadata: {labels: {plumbline: load}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
        - name: canary
          image: plumbline/loadgen:latest
          imagePullPolicy: Never
          args: [canary, "--web.listen-address=:9700", --server=shop, --storageclass=local-path, --rate=10, --warmup=1s, "--dsn=host=10.86.0.100 user=postgres dbname=postgres sslmode=disable"]
          ports: [{name: metrics, containerPort: 9700}]
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {name: load, namespace: shop}
spec:
  scrapeNativeHistograms: true
  selector: {matchLabels: {plumbline: load}}
  podMetricsEndpoints: [{port: metrics, honorLabels: true, relabelings: [{regex: pod|container|endpoint, action: labeldrop}]}]
`
