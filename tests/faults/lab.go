package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
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
	"github.com/plumbline/plumbline/tests/promapi"
	"github.com/plumbline/plumbline/tests/testkit"
)

// lab is a running lab.
type lab struct {
	o      options
	ctx    context.Context
	own    bool
	config config.Lab
	// supervisor talks to the lab's process-compose.
	supervisor *http.Client
	prometheus *promapi.Server
}

// startLab uses the lab that is there, or starts one.
func startLab(ctx context.Context, o options) (*lab, error) {
	socket := filepath.Join(o.dir, "process-compose.sock")
	l := &lab{o: o, ctx: ctx, own: !sandbox.Exists(o.dir), config: config.Lab{PortBase: o.portBase, Dir: o.dir}}
	for i, name := range strings.Fields(o.classes) {
		l.config.Classes = append(l.config.Classes, &config.Class{Name: name, Lab: &l.config, Index: i})
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	l.supervisor = &http.Client{Transport: &http.Transport{DialContext: dial}, Timeout: 2 * time.Minute}
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

func (l *lab) call(method, path string, into any) error {
	request, err := http.NewRequestWithContext(l.ctx, method, "http://supervisor"+path, nil)
	if err != nil {
		return err
	}
	answer, err := l.supervisor.Do(request)
	if err != nil {
		return fmt.Errorf("the lab's supervisor: %w", err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("the lab's supervisor answers %s to %s %s: %s", answer.Status, method, path, text)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

type process struct {
	PID     int    `json:"pid"`
	Running bool   `json:"is_running"`
	Status  string `json:"status"`
}

// ended says whether the supervisor waits for somebody to start the process.
func (p process) ended() bool {
	return slices.Contains([]string{"Completed", "Error", "Skipped"}, p.Status)
}

func (l *lab) process(name string) (p process, err error) {
	err = l.call(http.MethodGet, "/process/"+name, &p)
	return p, err
}

// signal sends a signal to one of the lab's processes.
func (l *lab) signal(name string, s syscall.Signal) error {
	p, err := l.process(name)
	if err != nil {
		return err
	}
	if !p.Running || p.PID <= 1 {
		return fmt.Errorf("%s does not run", name)
	}
	return syscall.Kill(p.PID, s)
}

// start has the supervisor start a process that has ended.
func (l *lab) start(name string) error {
	return testkit.Await(l.o.deadline, func() error {
		p, err := l.process(name)
		if err != nil || p.Running {
			return errors.Join(err, fmt.Errorf("%s has not ended", name))
		}
		return l.call(http.MethodPost, "/process/start/"+name, nil)
	})
}

// restart has the supervisor end a process in order and start it again.
func (l *lab) restart(name string) error {
	return l.call(http.MethodPost, "/process/restart/"+name, nil)
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
	p, err := l.process("agent")
	return fmt.Sprintf("/proc/%d/root%s", p.PID, path), err
}

// engine is what the lab's longhorn_exporter knows of a volume.
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

// control calls longhorn-engine for a volume.
func (l *lab) control(e engine, args ...string) error {
	args = append([]string{"--url", "http://" + e.Engine, "--volume-name", e.Volume, "--engine-instance-name", e.Volume + "-e-0"}, args...)
	if out, err := exec.CommandContext(l.ctx, filepath.Join(l.o.dir, "bin", "longhorn-engine"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("longhorn-engine %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
