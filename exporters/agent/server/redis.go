package server

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// Redis is the engine of the servers with Redis' protocol: Redis itself and Valkey.
const Redis DBSystem = "redis"

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
	port:       6379,
	notServing: redisNotServing,
	internal:   busPort,
	version:    snapshotVersion,
	// The append-only file is the one that the server has open.
	log: func(p process, _ *Server, _ *untrusted.Dir) (Storage, error) {
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

// redisNotServing knows Redis' other runs. Once it has started it writes over its arguments what it is, by default
// "redis-server *:26379 [sentinel]" (proc-title-template); its children, which count for it as long as it is there,
// write "redis-rdb-bgsave *:6379".
func redisNotServing(args []string) bool {
	title := strings.Fields(strings.Join(args, " "))
	if slices.Contains(title, "[sentinel]") || slices.Contains(args[1:], "--sentinel") {
		return true
	}
	for _, child := range []string{"-rdb-", "-aof-"} {
		if len(title) > 0 && !strings.Contains(title[0], "/") && strings.Contains(title[0], child) {
			return true
		}
	}
	return len(args) > 1 && slices.Contains([]string{"-v", "--version", "-h", "--help", "--test-memory", "--check-system"}, args[1])
}

// nodesFile is where a node of a cluster keeps what it knows of the others and of itself, and maxNodes how much of it
// is read.
const (
	nodesFile = "nodes.conf"
	maxNodes  = 256 << 10
)

// busPort returns the port of the bus between a cluster's nodes, which need not be at its usual offset (cluster-port):
// by the node's own line in the data directory, ID HOST:PORT@BUSPORT myself,…; before that is known, by its title,
// which names the clients' port, if there is one other.
func busPort(p process, s *Server, data *untrusted.Dir) []uint16 {
	title := strings.Fields(strings.Join(p.args, " "))
	if !slices.Contains(title, "[cluster]") {
		return nil
	}
	if data == nil {
		var others []uint16
		for _, port := range s.Ports {
			if !slices.ContainsFunc(title, func(word string) bool { return strings.HasSuffix(word, fmt.Sprintf(":%d", port)) }) {
				others = append(others, port)
			}
		}
		if len(others) == 1 && len(s.Ports) > 1 {
			return others
		}
		return nil
	}
	for line := range strings.Lines(p.headOf(data, nodesFile, maxNodes)) {
		const address, flags = 1, 2
		fields := strings.Fields(line)
		if len(fields) <= flags || !slices.Contains(strings.Split(fields[flags], ","), "myself") {
			continue
		}
		_, bus, _ := strings.Cut(fields[address], "@")
		bus, _, _ = strings.Cut(bus, ",")
		if port, err := strconv.ParseUint(bus, 10, 16); err == nil && port != 0 {
			return []uint16{uint16(port)}
		}
	}
	return nil
}

// maxSnapshotHead bounds what is read of a snapshot: the version is in its first bytes.
const maxSnapshotHead = 64

// snapshotVersion returns the version of the server that wrote the snapshot in the data directory, which is the first
// in it: REDIS0010, then 0xfa and two strings behind their lengths, redis-ver and the version.
func snapshotVersion(p process, data *untrusted.Dir) string {
	head := p.headOf(data, "dump.rdb", maxSnapshotHead)
	for _, key := range []string{"\xfa\x09redis-ver", "\xfa\x0avalkey-ver"} {
		_, rest, ok := strings.Cut(head, key)
		if ok && len(rest) > 1 && int(rest[0]) < len(rest) {
			return untrusted.Version(rest[1 : 1+int(rest[0])])
		}
	}
	return ""
}
