// Package remote knows, from sysfs and configfs, the volumes that this machine uses or serves over a storage
// network, NVMe over Fabrics or iSCSI, and how storage backends name them.
package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// Volume is what a namespace of a subsystem is to its storage backend; of iSCSI, what a LUN of a target is.
type Volume struct {
	// Name is the volume's, and Backend the engine's.
	Name, Backend string
	// Replica is empty for the volume itself, else the name of the replica that this is.
	Replica string
}

// Names are the rules for the names that engines give what they serve over a wire; the first that fits counts.
type Names struct {
	rules []name
	// wire is the backend of what no rule fits, and first its number of a volume that is alone.
	wire  string
	first uint32
}

type name struct {
	backend string
	pattern *regexp.Regexp
	// first is the number of a volume that is alone; others have theirs in their names.
	first uint32
}

// knownNVMe are the rules of engines that are known. Longhorn V2: go-spdk-helper's GetNQN, with
// the names of its engines and replicas, or since Longhorn 1.12 the volume's with volume- before it: a name has one of
// these. Mayastor: a volume's target has the volume's UUID, and Kubernetes' name of it is pvc- and that UUID.
var knownNVMe = must(1,
	`longhorn-v2=nqn\.2023-01\.io\.longhorn\.spdk:(?P<volume>.+)-r-(?P<replica>[0-9a-f]+)`,
	`longhorn-v2=nqn\.2023-01\.io\.longhorn\.spdk:(?P<volume>.+)-ef?-[0-9a-f]+`,
	`longhorn-v2=nqn\.2023-01\.io\.longhorn\.spdk:(?:volume-)?(?P<volume>.+)`,
	`mayastor=nqn\.2019-05\.io\.openebs:(?:nexus-)?(?P<volume>.+)`,
)

// knownISCSI are those of iSCSI. Longhorn V1: go-iscsi-helper's GetTargetName, whose disk is LUN 1. cStor
// and Jiva: the operators' prefixes of target names.
var knownISCSI = append(must(1,
	`longhorn-v1=iqn\.2019-10\.io\.longhorn:(?P<volume>.+)`,
), must(0,
	`cstor=iqn\.2016-09\.com\.openebs\.cstor:(?P<volume>.+)`,
	`jiva=iqn\.2016-09\.com\.openebs\.jiva:(?P<volume>.+)`,
)...)

// NVMe are the names of known engines over NVMe over Fabrics after those of further rules, which are ENGINE=REGEXP: the
// whole name of a subsystem (NQN), with a group "volume" and, where it is a volume's replica, a group "replica".
func NVMe(rules ...string) (Names, error) {
	own, err := parse(1, rules...)
	return Names{append(own, knownNVMe...), "nvme", 1}, err
}

// ISCSI are those over iSCSI, by the whole name of a target (IQN).
func ISCSI(rules ...string) (Names, error) {
	own, err := parse(0, rules...)
	return Names{append(own, knownISCSI...), "iscsi", 0}, err
}

func parse(first uint32, rules ...string) ([]name, error) {
	var names []name
	for _, rule := range rules {
		backend, text, ok := strings.Cut(rule, "=")
		if !ok || backend == "" {
			return nil, fmt.Errorf("%q is not ENGINE=REGEXP", rule)
		}
		pattern, err := regexp.Compile("^(?:" + text + ")$")
		if err != nil {
			return nil, fmt.Errorf("%q: %w", rule, err)
		}
		if pattern.SubexpIndex("volume") < 0 {
			return nil, fmt.Errorf(`%q has no group (?P<volume>…)`, rule)
		}
		names = append(names, name{backend, pattern, first})
	}
	return names, nil
}

func must(first uint32, rules ...string) []name {
	names, err := parse(first, rules...)
	if err != nil {
		panic(err)
	}
	return names
}

// maxName bounds names in labels.
const maxName = 128

// OfPath names what a path leads to. Where no rule fits, a target's name and the LUN need not identify it: an array may
// have one target for all volumes, and count the LUNs of each initiator from 0. The logical unit's own name does.
func (n Names) OfPath(p Path) Volume {
	v, ruled := n.of(p.Subsystem, p.Number)
	if !ruled && p.Unit != "" {
		v.Name = bounded(v.Name + "@" + p.Unit)
	}
	return v
}

// Of names a subsystem's namespace, or a target's LUN. Further ones are volumes of their own. What no rule fits is
// called by the whole name: its end is that of others, too.
func (n Names) Of(subsystem string, number uint32) Volume {
	v, _ := n.of(subsystem, number)
	return v
}

func (n Names) of(subsystem string, number uint32) (v Volume, ruled bool) {
	for _, one := range n.rules {
		found := one.pattern.FindStringSubmatch(subsystem)
		if found == nil {
			continue
		}
		v = Volume{Backend: one.backend, Name: found[one.pattern.SubexpIndex("volume")]}
		if i := one.pattern.SubexpIndex("replica"); i >= 0 {
			v.Replica = bounded(found[i])
		}
		if one.backend == "mayastor" && uuid.MatchString(v.Name) {
			v.Name = "pvc-" + v.Name
		}
		if number > one.first {
			v.Name += "/" + strconv.FormatUint(uint64(number), 10)
		}
		v.Name = bounded(v.Name)
		return v, true
	}
	v = Volume{Backend: n.wire, Name: subsystem}
	if number > n.first {
		v.Name += "/" + strconv.FormatUint(uint64(number), 10)
	}
	v.Name = bounded(v.Name)
	return v, false
}

// bounded makes a name fit for a label; one that is too long ends with a digest of the whole, so that it stays another
// than those that begin like it.
func bounded(name string) string {
	const widest = 3 // bytes that one byte may become
	if text := untrusted.Text(name, widest*len(name)+1); len(text) <= maxName {
		return text
	}
	sum := sha256.Sum256([]byte(name))
	end := "-" + hex.EncodeToString(sum[:8])
	return untrusted.Text(name, maxName-len(end)) + end
}

// Instance is what an engine calls what a subsystem serves: what follows the last colon of its name. It identifies
// nothing but beside the volume.
func Instance(subsystem string) string {
	if i := strings.LastIndexByte(subsystem, ':'); i >= 0 && i+1 < len(subsystem) {
		subsystem = subsystem[i+1:]
	}
	return untrusted.Text(subsystem, maxName)
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
