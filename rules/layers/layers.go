// Package layers is the one list of the layers that a statement's time is spent in, from the client to the disk of a
// volume's replica: their names, order, colours and words. The agent exports these names, the rules record them, and
// why, dashboards, matrices and reports read them. docs/layers.md describes each.
//
// A layer that a newer or older program records is not in the list. Of returns what shows it under its own name.
package layers

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// The names of the layers.
const (
	Client     = "client"
	CPU        = "cpu"
	Runqueue   = "runqueue"
	Wait       = "wait"
	FileSystem = "file_system"
	Read       = "read"
	Write      = "write"
	Sync       = "sync"
	Queue      = "queue"
	Device     = "device"
	Flush      = "flush"
	HostDisk   = "host_disk"
	Path       = "path"
	Engine     = "engine"
	Network    = "network"
	Replica    = "replica"
	Disk       = "disk"
	Rest       = "rest"
)

// Suspects that are no layer: what else explains that a class is slow.
const (
	Load    = "load"
	Host    = "host"
	Rebuild = "rebuild"
)

// Besides are these suspects.
var Besides = []string{Load, Host, Rebuild}

// Place is where a layer lies.
type Place int

// The places, from the top.
const (
	InServer  Place = iota // the database server and its file system
	InVolume               // the volume's device on the server's node, and what nothing splits further
	InEngine               // the storage backend and the way to it
	InReplica              // a replica, its disk and the way to it
)

// Layer is one layer.
type Layer struct {
	// Name is the value of the labels layer, suspect and phase.
	Name  string
	Place Place
	// Phase is true if the agent measures it of every statement; Traced if it does of the statements that it follows.
	Phase, Traced bool
	// Colour is distinct to the colour-blind from those of the other layers (Okabe and Ito's palette, and greys).
	Colour Colour
	// Letter stands for the layer where there are no colours.
	Letter string
	// Spent completes "of 29 ms, 18"; Words names the layer.
	Spent, Words string
	part         Part
	// Stuck is what dashboards call a stall in it; empty if no rule looks for one.
	Stuck string
	// Limit is what a matrix names as a run's limit where the layer takes most of the time; empty if that is not known.
	Limit string
}

// Colour is a layer's colour: Terminal among a terminal's 256, CSS on a page, Grafana on a dashboard. Grafana's palette
// is small: phases differ in it from each other, and so do a write's layers and the parts of a statement.
type Colour struct {
	Terminal     int
	CSS, Grafana string
}

// Okabe and Ito's palette, which people with any colour blindness can distinguish.
const (
	Blue       = "#0072B2"
	Sky        = "#56B4E9"
	Green      = "#009E73"
	Yellow     = "#F0E442"
	Orange     = "#E69F00"
	Vermillion = "#D55E00"
	Purple     = "#CC79A7"
	Grey       = "#999999"
	// Text is the palette's black: that of Grafana's theme's text, so that it is seen on dark, too.
	Text = "text"
)

// Part is a part of a statement's time, as dashboards show it, with its colour there.
type Part struct{ Name, Colour string }

var volume, wire = Part{"volume", Blue}, Part{"network", Orange}

// Part returns the part that a layer belongs to: one of its own if no other is known.
func (l Layer) Part() Part {
	if l.part.Name == "" {
		return Part{l.Name, l.Colour.Grafana}
	}
	return l.part
}

// Parts returns the parts from the client to the replica's disk, each where the lowest of its layers is.
func Parts() (parts []Part) {
	for _, l := range slices.Backward(All) {
		if l.Name != Rest && !slices.Contains(parts, l.Part()) {
			parts = append(parts, l.Part())
		}
	}
	slices.Reverse(parts)
	return parts
}

// All are the layers, from the top; what nothing explains is the last. What lies lower explains what lies above it.
var All = []Layer{
	{Name: Client, Place: InServer, Phase: true, Traced: true, Letter: "l", Colour: Colour{255, "#e8e8e8", Text},
		Limit: "client", Spent: "wait for the client", Words: "waiting for the client"},
	{Name: CPU, Place: InServer, Phase: true, Traced: true, Letter: "c", Colour: Colour{250, "#bbbbbb", Sky},
		Limit: "CPU of the database", Spent: "are work on a CPU", Words: "work on a CPU"},
	{Name: Runqueue, Place: InServer, Phase: true, Traced: true, Letter: "r", Colour: Colour{240, "#666666", Yellow},
		Limit: "CPU of the database's node", Spent: "wait for a CPU", Words: "waiting for a CPU"},
	{Name: Wait, Place: InServer, Phase: true, Traced: true, Letter: "w", Colour: Colour{175, "#cc79a7", Purple},
		Limit: "other sessions", Spent: "wait for others (sessions' syncs, locks, standbys)",
		Words: "waiting for others (sessions' syncs, locks, standbys)"},
	{Name: FileSystem, Place: InServer, Traced: true, Letter: "y", Colour: Colour{245, "#8a8a8a", Grey}, part: volume,
		Stuck: "file system stalled", Words: "the file system"},
	{Name: Read, Place: InServer, Phase: true, Letter: "R", Colour: Colour{37, "#009e73", Green}, part: volume,
		Spent: "wait for reads", Words: "reading files"},
	{Name: Write, Place: InServer, Phase: true, Letter: "W", Colour: Colour{79, "#66c9a8", Orange}, part: volume,
		Spent: "wait for writes of files", Words: "writing files"},
	{Name: Sync, Place: InServer, Phase: true, Letter: "s", Colour: Colour{32, "#0072b2", Vermillion}, part: volume,
		Spent: "wait for sync", Words: "sync"},
	{Name: Queue, Place: InVolume, Traced: true, Letter: "q", Colour: Colour{228, "#f0e442", Yellow}, part: volume,
		Limit: "device", Words: "the kernel's queue"},
	{Name: Device, Place: InVolume, Traced: true, Letter: "d", Colour: Colour{32, "#0072b2", Blue}, part: volume,
		Stuck: "device stalled", Limit: "device", Words: "the device"},
	{Name: Flush, Place: InVolume, Letter: "f", Colour: Colour{24, "#003a5c", Sky}, part: volume, Limit: "device",
		Words: "the device's cache flush"},
	{Name: HostDisk, Place: InVolume, Letter: "o", Colour: Colour{130, "#a0522d", Orange}, part: volume,
		Stuck: "host disk stalled", Limit: "device", Words: "the host's disk below the device"},
	{Name: Path, Place: InEngine, Letter: "h", Colour: Colour{97, "#7b4ea3", Purple}, part: wire, Limit: "network",
		Words: "the network to the engine"},
	{Name: Engine, Place: InEngine, Traced: true, Letter: "e", Colour: Colour{74, "#56b4e9", Green},
		Stuck: "engine stalled", Limit: "engine", Words: "the engine"},
	{Name: Network, Place: InReplica, Traced: true, Letter: "n", Colour: Colour{214, "#e69f00", Orange},
		Stuck: "network stalled", Limit: "network", Words: "the network to the slowest replica"},
	{Name: Replica, Place: InReplica, Traced: true, Letter: "p", Colour: Colour{166, "#d55e00", Grey},
		Stuck: "replica stalled", Limit: "engine", Words: "the slowest replica's process"},
	{Name: Disk, Place: InReplica, Traced: true, Letter: "k", Colour: Colour{88, "#7a2e00", Vermillion},
		part: Part{"replica's disk", Vermillion}, Stuck: "disk stalled", Limit: "device",
		Words: "the disk below the slowest replica"},
	{Name: Rest, Place: InVolume, Letter: ".", Colour: Colour{252, "#d0d0d0", Text}, part: volume,
		Words: "unexplained"},
}

// place is a layer's index in All; that of an unknown one is after all.
func place(name string) int {
	if i := slices.IndexFunc(All, func(l Layer) bool { return l.Name == name }); i >= 0 {
		return i
	}
	return math.MaxInt
}

// Of returns the layer of a name. One that is not in All is of the volume, as what nothing splits further, and is shown
// by its name.
func Of(name string) Layer {
	if i := place(name); i < len(All) {
		return All[i]
	}
	return Layer{Name: name, Place: InVolume, Letter: "?", Colour: Colour{252, "#d0d0d0", Text},
		Spent: "are of the phase " + name, Words: "the layer " + name}
}

// Compare orders names as All does; unknown ones come last, by name.
func Compare(a, b string) int {
	return cmp.Or(cmp.Compare(place(a), place(b)), strings.Compare(a, b))
}

// Names returns the names of the layers that are chosen, from the top.
func Names(chosen func(Layer) bool) (names []string) {
	for _, l := range All {
		if chosen(l) {
			names = append(names, l.Name)
		}
	}
	return names
}

// IsPhase reports whether the agent measures a layer of every statement.
func IsPhase(l Layer) bool { return l.Phase }

// IsTraced reports whether the agent measures a layer of the statements that it follows.
func IsTraced(l Layer) bool { return l.Traced }

// IsStorage reports whether a layer is a part of the volume's time that rules suspect; host_disk has none of its own.
func IsStorage(l Layer) bool { return l.Place >= InVolume && l.Name != Rest && l.Name != HostDisk }

// OfVolume reports whether a layer's time is the volume's, or the server's in its files.
func OfVolume(l Layer) bool { return l.Place >= InVolume || l.Part() == volume }

// OnDisk reports whether a layer's time is longer while somebody else keeps the disk busy that the volume's bytes are on.
func OnDisk(l Layer) bool {
	return l.Name == Device || l.Name == Queue || l.Name == Flush || l.Name == Replica || l.Name == Disk || l.Place == InServer && OfVolume(l)
}

// InSync reports whether a layer is one that a sync is made of, or sync itself.
func InSync(l Layer) bool { return l.Place >= InVolume || l.Name == Sync }
