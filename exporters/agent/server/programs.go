package server

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// maxPrograms bounds the names that are added: the kernel side compares with so many.
const maxPrograms = 8

// Programs are the names by which servers are found: their programs'. The zero Programs are the known ones.
type Programs struct{ more names }

// names are engines by the names of programs, as their files have them and as the kernel keeps them.
type names struct{ files, comms map[string]DBSystem }

func newNames() names { return names{map[string]DBSystem{}, map[string]DBSystem{}} }

// add adds a program, and what nixpkgs calls it where it has put a script in its place.
func (n names) add(program string, engine DBSystem) {
	for _, name := range []string{program, "." + program + "-wrapped"} {
		n.files[name], n.comms[comm(name)] = engine, engine
	}
}

// comm is as much of a name as the kernel keeps of it.
func comm(name string) string { return name[:min(untrusted.MaxComm, len(name))] }

// known are the programs of all kinds.
var known = func() names {
	all := newNames()
	for engine, k := range kinds {
		for _, name := range k.programs {
			all.add(name, engine)
		}
	}
	return all
}()

// NewPrograms returns the known names and further ones, each as ENGINE=NAME.
func NewPrograms(more ...string) (Programs, error) {
	p := Programs{newNames()}
	if len(more) > maxPrograms {
		return p, fmt.Errorf("%d names of programs; at most %d can be added", len(more), maxPrograms)
	}
	for _, one := range more {
		engine, name, ok := strings.Cut(one, "=")
		if _, is := kinds[DBSystem(engine)]; !ok || !is {
			return p, fmt.Errorf("%q is not ENGINE=NAME with one of the engines %v", one, slices.Sorted(maps.Keys(kinds)))
		}
		if name == "" || strings.ContainsAny(name, "/\x00\n") {
			return p, fmt.Errorf("%q: %q is no name of a program, as in /proc/PID/comm", one, name)
		}
		if other, is := p.Of(name); is && other != DBSystem(engine) {
			return p, fmt.Errorf("%q: programs of that name are %s's already", one, other)
		}
		p.more.add(name, DBSystem(engine))
	}
	return p, nil
}

// versioned is a version at the end of a program's name, as of Redis Enterprise's redis-server-7.2. The kernel may have
// cut it short.
var versioned = regexp.MustCompile(`-[0-9][0-9.]*$`)

// Of returns the engine of a process by its name (/proc/PID/comm).
func (p Programs) Of(name string) (DBSystem, bool) {
	return p.find(func(n names) map[string]DBSystem { return n.comms }, comm(name), comm(versioned.ReplaceAllString(name, "")))
}

// OfFile returns the engine of a program by its file, as /proc/PID/exe leads to it. A program that was wrapped twice
// has an underscore at the end.
func (p Programs) OfFile(path string) (DBSystem, bool) {
	name := filepath.Base(strings.TrimSuffix(path, " (deleted)"))
	return p.find(func(n names) map[string]DBSystem { return n.files }, name, strings.TrimRight(name, "_"), versioned.ReplaceAllString(name, ""))
}

// find returns the engine of the first of some names that is known.
func (p Programs) find(of func(names) map[string]DBSystem, all ...string) (DBSystem, bool) {
	for _, name := range all {
		for _, some := range []names{known, p.more} {
			if engine, ok := of(some)[name]; ok {
				return engine, true
			}
		}
	}
	return "", false
}

// Names returns the names that processes of servers have.
func (p Programs) Names() []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(known.comms)), maps.Keys(p.more.comms))
	slices.Sort(all)
	return slices.Compact(all)
}
