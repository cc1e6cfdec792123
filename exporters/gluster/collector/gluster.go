// Package collector holds gluster_exporter's one collector: it runs GlusterFS's command line program in the background.
// A scrape only reads the last answers.
package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// backend is the value of the shared vocabulary's label of this name.
const backend = "gluster"

// Options is what the collector is given.
type Options struct {
	Log *slog.Logger
	CLI CLI
	// Node is this machine's name; bricks are traced to devices on it only.
	Node string
	// Bricks is all, or local for this machine's only.
	Bricks string
	// Interval is the time between two polls.
	Interval time.Duration
	// ProcFS, SysFS and RootFS are the roots of procfs, sysfs and the file system with the bricks.
	ProcFS, SysFS, RootFS string
}

// Gluster is the collector.
type Gluster struct {
	o      Options
	finder *disk.Finder
	// untraced are the bricks of this machine whose disks are not found.
	untraced *disk.Untraced
	// next is where the next poll goes on with the volumes' own commands; only polls use it.
	next int

	mu     sync.Mutex
	polled time.Time // when the poll began whose answers are shown; zero before the first
	err    error     // of its list of volumes
	// ticks are how many of the latencies' units make a second; 0 if that is not known.
	ticks   float64
	volumes []*volume
	errors  map[string]float64
}

// commands are the queries, as in the label "command" of the errors.
const (
	commandVersion = "version"
	commandPool    = "pool list"
	commandInfo    = "volume info"
	commandStatus  = "volume status"
	commandProfile = "volume profile"
	commandHeal    = "volume heal"
)

const (
	// maxAge is how long a volume's counts and heals are exposed without a new query.
	maxAge = 5 * time.Minute
	// maxVolumes bounds the started volumes, each of which needs commands of its own.
	maxVolumes = 1000
	// maxBricks bounds the bricks of a volume, maxFops the kinds of file operations; GlusterFS has 58.
	maxBricks, maxFops = 1000, 100
	// maxCount bounds a count or a number of bytes, maxLatency a mean latency: a day, if it is nanoseconds.
	maxCount, maxLatency = 1 << 60, 24 * 3600e9
)

// New makes the collector; Run lets it poll.
func New(o Options) *Gluster {
	g := &Gluster{o: o, finder: &disk.Finder{ProcFS: o.ProcFS, SysFS: o.SysFS, RootFS: o.RootFS}, untraced: disk.NewUntraced(o.Log, "gluster"), errors: map[string]float64{}}
	for _, c := range []string{commandVersion, commandPool, commandInfo, commandStatus, commandProfile, commandHeal} {
		g.errors[c] = 0
	}
	return g
}

// list queries the started volumes and their bricks.
func (g *Gluster) list(ctx context.Context) ([]*volume, error) {
	var pool poolList
	if err := g.o.CLI.query(ctx, &pool, "pool", "list"); err != nil {
		return nil, g.failed(ctx, commandPool, "", err)
	}
	var info volumeInfo
	if err := g.o.CLI.query(ctx, &info, "volume", "info"); err != nil {
		return nil, g.failed(ctx, commandInfo, "", err)
	}
	var volumes []*volume
	local := pool.local()
	for _, i := range info.Volumes {
		if i.Status != "Started" {
			continue
		}
		if err := i.check(); err != nil {
			_ = g.failed(ctx, commandInfo, i.Name, err)
			continue
		}
		if len(volumes) == maxVolumes {
			_ = g.failed(ctx, commandInfo, "", fmt.Errorf("it lists more than %d started volumes; the others are left out", maxVolumes))
			break
		}
		v := &volume{name: i.Name, replicas: i.Replicas - i.Arbiters, set: max(i.Replicas, 1), dispersed: i.Disperse != 0}
		on := 0
		for _, o := range i.Options {
			if (o.Name == "diagnostics.latency-measurement" || o.Name == "diagnostics.count-fop-hits") && slices.Contains(glusterTrue, strings.ToLower(o.Value)) {
				on++
			}
		}
		v.profiled = on == 2
		for _, ib := range i.Bricks {
			v.bricks = append(v.bricks, g.brick(ib.Name, local != "" && ib.Host == local, ib.Arbiter == 1))
		}
		volumes = append(volumes, v)
	}
	return volumes, nil
}

// glusterTrue are GlusterFS' words for an option that is on; it reports the one that was typed (gf_string2boolean in
// libglusterfs/src/common-utils.c).
var glusterTrue = []string{"1", "on", "yes", "true", "enable"}

// place is where a brick is. It identifies the brick however its host is written.
type place struct{ host, path string }

// placeOf takes a brick's name apart, which is host:path. The path begins with the first slash, and the host before it
// may be an IPv6 address, with brackets or without.
func placeOf(name string) place {
	at := place{host: name}
	if i := strings.Index(name, ":/"); i >= 0 {
		at = place{name[:i], name[i+1:]}
	}
	at.host = strings.TrimSuffix(strings.TrimPrefix(at.host, "["), "]")
	return at
}

// brick returns where a brick is.
func (g *Gluster) brick(name string, local, arbiter bool) *brick {
	at := placeOf(name)
	b := &brick{name: name, node: at.host, address: name, local: local, arbiter: arbiter}
	if local {
		b.node = g.o.Node
		b.device, b.noDevice = g.finder.Wait(at.path)
	}
	return b
}

func (g *Gluster) status(ctx context.Context, volumes []*volume) {
	var status volumeStatus
	if err := g.o.CLI.query(ctx, &status, "volume", "status", "all"); err != nil {
		_ = g.failed(ctx, commandStatus, "", err)
		return
	}
	type of struct {
		volume string
		place
	}
	ports := map[of]string{} // of the bricks that run
	for _, v := range status.Volumes {
		for _, n := range v.Nodes {
			if n.Status == 1 {
				at := placeOf(n.Host + ":" + n.Path)
				ports[of{v.Name, at}] = net.JoinHostPort(at.host, n.Port)
			}
		}
	}
	for _, v := range volumes {
		bricks := map[string]int{} // by their address
		for _, b := range v.bricks {
			bricks[ports[of{v.name, placeOf(b.name)}]]++
		}
		for _, b := range v.bricks {
			// A node that is away is not in the answer, nor are its bricks.
			address, is := ports[of{v.name, placeOf(b.name)}]
			b.up = &is
			if is && bricks[address] == 1 {
				b.address = address
			}
		}
	}
}

// profile queries the counts of a volume's bricks. The volume is exposed already.
func (g *Gluster) profile(ctx context.Context, v *volume) {
	if !v.profiled {
		return
	}
	totals := map[place]*stats{}
	var profile volumeProfile
	// Cumulative leaves alone the interval of those who read the incremental values.
	if err := g.o.CLI.query(ctx, &profile, "volume", "profile", v.name, "info", "cumulative"); err != nil {
		_ = g.failed(ctx, commandProfile, v.name, err)
		profile.Bricks = nil
	}
	for _, answer := range profile.Bricks {
		if err := answer.Total.check(); err != nil {
			_ = g.failed(ctx, commandProfile, v.name, fmt.Errorf("brick %s: %w", label.Value(answer.Name), err))
			continue
		}
		totals[placeOf(answer.Name)] = answer.Total
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	v.profiledAt = time.Now()
	for _, b := range v.bricks {
		b.total = totals[placeOf(b.name)]
	}
}

// heal queries what a volume's bricks have to heal. The volume is exposed already.
func (g *Gluster) heal(ctx context.Context, v *volume) {
	if v.replicas < 2 {
		return
	}
	out, err := g.o.CLI.call(ctx, "volume", "heal", v.name, "statistics", "heal-count")
	var entries map[place]float64
	if err == nil {
		entries, err = healCount(out)
	}
	if err != nil {
		_ = g.failed(ctx, commandHeal, v.name, err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	v.healedAt = time.Now()
	for _, b := range v.bricks {
		b.heal = nil
		if n, ok := entries[placeOf(b.name)]; ok {
			b.heal = &n
		}
	}
}

// failed counts a command that failed, unless we are ending ourselves.
func (g *Gluster) failed(ctx context.Context, command, volume string, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	g.o.Log.Warn("gluster did not answer", "command", command, "volume", label.Value(volume), "err", label.Text(err.Error(), 512))
	g.mu.Lock()
	defer g.mu.Unlock()
	g.errors[command]++
	return fmt.Errorf("%s: %w", command, err)
}

// Update implements exporterkit.Collector.
func (g *Gluster) Update(ch chan<- prometheus.Metric) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for command, n := range g.errors {
		exporterkit.Counter(ch, errorsTotal, n, command)
	}
	if g.polled.IsZero() {
		// Not ErrNoData: it must not read as if there were no volumes.
		return errors.New("glusterd has not answered yet")
	}
	age := time.Since(g.polled)
	late := age > g.tooOld()
	gauge(ch, up, truth(g.err == nil && !late))
	gauge(ch, lastPoll, float64(g.polled.UnixMilli())/1e3)
	if late {
		return fmt.Errorf("the last poll that ended began %s ago; GlusterFS answers too slowly", age.Round(time.Second))
	}
	for _, v := range g.volumes {
		g.send(ch, v)
	}
	g.untraced.Send(ch)
	return g.err
}

func (g *Gluster) send(ch chan<- prometheus.Metric, v *volume) {
	gauge(ch, profiled, truth(v.profiled), v.name)
	if v.replicas > 0 && !v.dispersed {
		gauge(ch, exporterkit.DesiredReplicas, float64(v.replicas), v.name, backend)
		if n, known := v.healthy(); known {
			gauge(ch, exporterkit.HealthyReplicas, float64(n), v.name, backend)
		}
	}
	for _, b := range v.bricks {
		if g.o.Bricks == "local" && !b.local {
			continue
		}
		g.untraced.Note(placeOf(b.name).path, b.noDevice)
		gauge(ch, exporterkit.ReplicaInfo, 1, v.name, b.name, b.node, b.device, b.address, backend)
		if b.up != nil {
			gauge(ch, brickUp, truth(*b.up), v.name, b.name)
		}
		if b.heal != nil {
			gauge(ch, healEntries, *b.heal, v.name, b.name)
		}
		if b.total == nil {
			continue
		}
		counter(ch, readBytes, b.total.Read, v.name, b.name)
		counter(ch, writtenBytes, b.total.Written, v.name, b.name)
		for _, f := range b.total.Fops {
			counter(ch, fops, f.Hits, v.name, b.name, f.Name)
			if g.ticks > 0 {
				counter(ch, fopSeconds, f.Hits*f.Mean/g.ticks, v.name, b.name, f.Name)
			}
		}
	}
}

// Check runs all queries once and reports what answered.
func (g *Gluster) Check(ctx context.Context) []exporterkit.CheckResult {
	g.poll(ctx, maxAge)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil || ctx.Err() != nil {
		return []exporterkit.CheckResult{{Part: "glusterd", Err: errors.Join(g.err, ctx.Err())}}
	}
	results := []exporterkit.CheckResult{{Part: "glusterd", Note: fmt.Sprintf("%d started volumes", len(g.volumes))}}
	if g.ticks == 0 {
		results = append(results, exporterkit.CheckResult{Part: "version", Err: errors.New("it is not known, so there are no latencies; see the log")})
	}
	for _, v := range g.volumes {
		if !g.queries(v) {
			continue
		}
		counted := len(slices.DeleteFunc(slices.Clone(v.bricks), func(b *brick) bool { return b.total == nil }))
		r := exporterkit.CheckResult{Part: "volume " + v.name, Note: fmt.Sprintf("%d of %d bricks are counted", counted, len(v.bricks))}
		if !v.profiled {
			r.Err = fmt.Errorf("nothing is counted; run `gluster volume profile %s start`", v.name)
		}
		results = append(results, r)
	}
	return results
}
