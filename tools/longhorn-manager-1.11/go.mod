module github.com/plumbline/plumbline/tools/longhorn-manager-1.11

go 1.26.0

// Its custom resource definitions are used, in tests. longhorn-manager has those of an earlier one.
require github.com/longhorn/longhorn-manager v1.11.1
