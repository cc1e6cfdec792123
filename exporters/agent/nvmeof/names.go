// Package nvmeof knows, from sysfs and configfs, the volumes that this machine uses or serves over NVMe
// over Fabrics, and how storage engines name them.
package nvmeof

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/plumbline/plumbline/exporters/agent/foreign"
)

// Volume is what a namespace of a subsystem is to its storage engine.
type Volume struct {
	// Name is the volume's, and Backend the engine's.
	Name, Backend string
	// Replica is empty for the volume itself, else the name of the replica that this is.
	Replica string
}

// Names are the rules by which engines name subsystems, the first that fits counts.
type Names []name

type name struct {
	backend string
	pattern *regexp.Regexp
}

// known are the rules of engines that are known. Longhorn's second engine: go-spdk-helper's GetNQN, with
// the names of its engines and replicas. Mayastor: a volume's target has the volume's UUID, and
// Kubernetes' name of it is pvc- and that UUID. Whatever else there is names its volumes last.
var known = must(
	`longhorn-v2=nqn\.2023-01\.io\.longhorn\.spdk:(?P<volume>.+)-r-(?P<replica>[0-9a-f]+)`,
	`longhorn-v2=nqn\.2023-01\.io\.longhorn\.spdk:(?:volume-)?(?P<volume>.+?)(?:-ef?-[0-9a-f]+)?`,
	`mayastor=nqn\.2019-05\.io\.openebs:(?:nexus-)?(?P<volume>.+)`,
	`nvme=.*?(?P<volume>[^:]+)`,
)

// Known are the names of known engines after those of further rules, which are ENGINE=REGEXP: the whole
// name of a subsystem (NQN), with a group "volume" and, where it is a volume's replica, a group "replica".
func Known(rules ...string) (Names, error) {
	own, err := parse(rules...)
	return append(own, known...), err
}

func parse(rules ...string) (Names, error) {
	var names Names
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
		names = append(names, name{backend, pattern})
	}
	return names, nil
}

func must(rules ...string) Names {
	names, err := parse(rules...)
	if err != nil {
		panic(err)
	}
	return names
}

// maxName bounds names in labels.
const maxName = 128

// Of names a subsystem's namespace. Further namespaces of a subsystem are volumes of their own.
func (n Names) Of(nqn string, namespace uint32) Volume {
	for _, one := range n {
		found := one.pattern.FindStringSubmatch(nqn)
		if found == nil {
			continue
		}
		v := Volume{Backend: one.backend, Name: found[one.pattern.SubexpIndex("volume")]}
		if i := one.pattern.SubexpIndex("replica"); i >= 0 {
			v.Replica = foreign.Text(found[i], maxName)
		}
		if one.backend == "mayastor" && uuid.MatchString(v.Name) {
			v.Name = "pvc-" + v.Name
		}
		if namespace > 1 {
			v.Name += "/" + strconv.Itoa(int(namespace))
		}
		v.Name = foreign.Text(v.Name, maxName)
		return v
	}
	return Volume{Backend: "nvme", Name: foreign.Text(nqn, maxName)}
}

// Instance is what an engine calls what a subsystem serves: what follows the last colon of its name.
func Instance(nqn string) string {
	if i := strings.LastIndexByte(nqn, ':'); i >= 0 && i+1 < len(nqn) {
		nqn = nqn[i+1:]
	}
	return foreign.Text(nqn, maxName)
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
