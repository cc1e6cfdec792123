module github.com/plumbline/plumbline/tools/longhorn-manager

go 1.26.0

// Its custom resource definitions are used, in tests. longhorn-manager-1.11 has those of a later one.
require github.com/longhorn/longhorn-manager v1.8.0
