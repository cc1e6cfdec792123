package server

import (
	"strings"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/foreign"
)

// Redis is the engine of the servers that speak Redis' protocol: Redis itself and Valkey.
const Redis Engine = "redis"

// busOffset is how far above a server's port that of the bus between a cluster's nodes is.
const busOffset = 10000

var redis = kind{
	protocol: bpf.QueryEngineREDIS,
	commands: Commands{
		bpf.QueryCommandOTHER: "other", bpf.QueryRedisCommandREDIS_READ: "read", bpf.QueryRedisCommandREDIS_WRITE: "write",
		bpf.QueryRedisCommandREDIS_BLOCKING: "blocking", bpf.QueryRedisCommandREDIS_TRANSACTION: "transaction",
		bpf.QueryRedisCommandREDIS_SCRIPTING: "scripting", bpf.QueryRedisCommandREDIS_PUBSUB: "pubsub",
		bpf.QueryRedisCommandREDIS_CONNECTION: "connection", bpf.QueryRedisCommandREDIS_ADMIN: "admin",
	},
	programs:   []string{"redis-server", "valkey-server"},
	servesMany: true,
	notServing: []string{"-v", "--version", "-h", "--help", "--test-memory", "--check-system", "--sentinel"},
	version:    snapshotVersion,
	// The append-only file is the one that the server has open.
	log: func(p process, _ *Server, _ *foreign.Dir) (Storage, error) {
		return p.openLog(func(name string) bool { return strings.HasSuffix(name, ".aof") })
	},
	isOther: func(port uint16, ports []uint16) bool {
		for _, other := range ports {
			if int(other)+busOffset == int(port) {
				return true
			}
		}
		return false
	},
}

// maxSnapshotHead bounds what is read of a snapshot: the version is in its first bytes.
const maxSnapshotHead = 64

// snapshotVersion returns the version of the server that wrote the snapshot in the data directory, which is the first it tells
// of itself: REDIS0010, then 0xfa and two strings behind their lengths, redis-ver and the version.
func snapshotVersion(p process, data *foreign.Dir) string {
	head := p.headOf(data, "dump.rdb", maxSnapshotHead)
	for _, key := range []string{"\xfa\x09redis-ver", "\xfa\x0avalkey-ver"} {
		_, rest, ok := strings.Cut(head, key)
		if ok && len(rest) > 1 && int(rest[0]) < len(rest) {
			return foreign.Version(rest[1 : 1+int(rest[0])])
		}
	}
	return ""
}
