package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/manifests/lab/supervise"
	"github.com/plumbline/plumbline/tests/promapi"
	"github.com/plumbline/plumbline/tests/testkit"
)

// lab is a running lab.
type lab struct {
	o          options
	ctx        context.Context
	own        bool
	config     config.Lab
	supervisor *supervise.Client
	prometheus *promapi.Server
}

// startLab uses the lab that is there, or starts one.
func startLab(ctx context.Context, o options) (*lab, error) {
	l := &lab{o: o, ctx: ctx, own: !sandbox.Exists(o.dir), config: config.Lab{PortBase: o.portBase, Dir: o.dir}}
	for i, name := range strings.Fields(o.classes) {
		l.config.Classes = append(l.config.Classes, &config.Class{Name: name, Lab: &l.config, Index: i})
	}
	l.supervisor = supervise.At(o.dir)
	var err error
	if l.prometheus, err = promapi.At(l.config.URL("prometheus")); err != nil {
		return nil, err
	}
	if l.own {
		if out, err := l.command("up").CombinedOutput(); err != nil {
			return nil, errors.Join(fmt.Errorf("starting the lab: %w\n%s", err, out), l.stop())
		}
	}
	// Rates of the beginning are over.
	_, err = l.await([]string{
		`count(up == 1) == count(up)`,
		`count(rate(loadgen_completed_total{tool="pgbench"}[20s]) > 1) == ` + fmt.Sprint(len(l.config.Classes)),
		`count(loadgen_phase{phase="steady"} == 1) >= ` + fmt.Sprint(len(l.config.Classes)),
	})
	if err != nil {
		return nil, errors.Join(err, l.stop())
	}
	return l, nil
}

// command prepares a call of the lab's program.
func (l *lab) command(args ...string) *exec.Cmd {
	cmd := exec.Command(absolute(l.o.program), args...)
	cmd.Dir = testkit.Root()
	cmd.Env = append(os.Environ(), "LAB_DIR="+l.o.dir, fmt.Sprintf("LAB_PORT_BASE=%d", l.o.portBase), "LAB_CLASSES="+l.o.classes)
	return cmd
}

// stop removes the lab if it was started here.
func (l *lab) stop() error {
	if !l.own || l.o.keep {
		return nil
	}
	if out, err := l.command("down").CombinedOutput(); err != nil {
		return fmt.Errorf("removing the lab: %w\n%s", err, out)
	}
	return nil
}

// class returns a class of the lab by its name.
func (l *lab) class(name string) *config.Class {
	i := slices.IndexFunc(l.config.Classes, func(c *config.Class) bool { return c.Name == name })
	if i < 0 {
		panic("the lab was started without class " + name)
	}
	return l.config.Classes[i]
}

func (l *lab) metrics(class, exporter string) string {
	port, err := l.class(class).Port(exporter)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d/metrics", port)
}

// signal sends a signal to one of the lab's processes.
func (l *lab) signal(name string, s syscall.Signal) error {
	// Repairs are made also when the proof is interrupted.
	return l.supervisor.Signal(context.WithoutCancel(l.ctx), name, s)
}

// within does something to the lab's processes in the time that a condition may take.
func (l *lab) within(do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(l.ctx, l.o.deadline)
	defer cancel()
	return do(ctx)
}

// kill ends a process for good: the supervisor leaves it until it is started.
func (l *lab) kill(name string) error {
	return l.within(func(ctx context.Context) error { return l.supervisor.Stop(ctx, name, syscall.SIGKILL) })
}

// start starts a process that kill ended, and returns once it is up.
func (l *lab) start(name string) error {
	return l.within(func(ctx context.Context) error { return l.supervisor.Start(ctx, name) })
}

// restart has the supervisor end a process in order and start it again.
func (l *lab) restart(name string) error {
	return l.within(func(ctx context.Context) error { return l.supervisor.Restart(ctx, name) })
}

// restarts is how often the supervisor has started a process again by itself.
func (l *lab) restarts(name string) (int, error) {
	p, err := l.supervisor.Process(l.ctx, name)
	return p.State.Restarts, err
}

// startedAgain returns once the supervisor has started a process by itself, more often than before,
// and it is up, and how long that took.
func (l *lab) startedAgain(name string, before int) (time.Duration, error) {
	began := time.Now()
	err := testkit.Await(l.o.deadline, func() error {
		p, err := l.supervisor.Process(l.ctx, name)
		if err == nil && (p.State.Restarts <= before || !p.Up()) {
			err = fmt.Errorf("the supervisor has not started %s again: %s, %d restarts", name, p.State.Phase, p.State.Restarts)
		}
		return err
	})
	return time.Since(began), errors.Join(err, l.ctx.Err())
}

// await returns once each condition has given a value, and how long that took.
func (l *lab) await(conditions []string) (time.Duration, error) {
	began := time.Now()
	for _, c := range conditions {
		err := testkit.Await(l.o.deadline, func() error {
			if l.ctx.Err() != nil {
				return nil
			}
			v, err := l.prometheus.Vector(l.ctx, c)
			if err == nil && len(v) == 0 {
				err = errors.New("not so")
			}
			return err
		})
		if err = errors.Join(err, l.ctx.Err()); err != nil {
			return time.Since(began), fmt.Errorf("%s: %w", c, err)
		}
	}
	return time.Since(began), nil
}

// connect connects to a class's database.
func (l *lab) connect(ctx context.Context, class string) (*pgx.Conn, error) {
	return pgx.Connect(ctx, "host="+l.class(class).SocketDirectory()+" user=postgres dbname=postgres")
}

// inside is a path of the lab as seen from outside its mount namespace.
func (l *lab) inside(path string) (string, error) {
	p, err := l.supervisor.Process(l.ctx, "agent")
	return fmt.Sprintf("/proc/%d/root%s", p.PID, path), err
}

// engine is what the lab's longhorn_exporter has on a volume.
type engine struct {
	Volume   string `yaml:"volume"`
	Engine   string `yaml:"engine"`
	Replicas []struct {
		Name      string `yaml:"name"`
		Address   string `yaml:"address"`
		Directory string `yaml:"directory"`
	} `yaml:"replicas"`
}

func (l *lab) engine() (e engine, err error) {
	text, err := os.ReadFile(filepath.Join(l.o.dir, "longhorn.yaml"))
	if err != nil {
		return e, err
	}
	var file struct {
		Targets []engine `yaml:"targets"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Targets) == 0 {
		return e, errors.Join(err, errors.New("longhorn.yaml: no volume"))
	}
	return file.Targets[0], nil
}
