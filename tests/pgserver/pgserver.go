// Package pgserver runs PostgreSQL servers of their own for tests and measurements.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/testkit"
)

const (
	// stopTimeout is how long a server may take to end before it is killed.
	stopTimeout = 20 * time.Second
)

// elsewhere is where servers begin. Their own folder may be on a FUSE file system of this process: a child that changes
// to that folder before it executes another program sends a request to this process, in which one thread waits for the
// child as if it were running, and a garbage collection waits for that thread.
const elsewhere = "/"

// Owner is the system user that servers run as: PostgreSQL refuses to run as root.
const Owner = "postgres"

// Options configure a server.
type Options struct {
	// Initdb and Postgres are the program files, see Tool.
	Initdb, Postgres string
	// Root, if not empty, is a folder in which the programs are run as in a root of their own. It has Dir as /run.
	Root string
	// Dir is an empty folder of the user Owner to put everything in, which Stop leaves there;
	// if empty, one below /var/tmp (a disk, not memory) that Stop removes.
	Dir string
	// Template, if not empty, is a data directory that Template made, to copy instead of making a new one.
	Template string
	// Settings are configuration parameters.
	Settings map[string]string
	// Prepare, if not nil, is called with the data directory before the first start.
	Prepare func(data string)
}

// Server is a running server. The caller must stop it.
type Server struct {
	// Dir holds everything of it; Data is its data directory in there, Log its log.
	Dir, Data, Log string
	Port           int
	PID            int
	// URL is a connection string for its superuser, over TCP.
	URL   string
	cmd   *exec.Cmd
	ended chan struct{}
	keep  bool
	root  string
}

// Tool returns the path of one of PostgreSQL's programs: from PATH, else of the newest version
// in Debian's folders.
func Tool(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(found) == 0 {
		return "", fmt.Errorf("no program %s in PATH or /usr/lib/postgresql", name)
	}
	slices.Sort(found)
	return found[len(found)-1], nil
}

// Start initialises and starts a server.
func Start(o Options) (*Server, error) {
	who, err := credential()
	if err != nil {
		return nil, err
	}
	dir := o.Dir
	if dir == "" {
		if dir, err = makeDir(who); err != nil {
			return nil, err
		}
	}
	s := &Server{Dir: dir, Data: filepath.Join(dir, "data"), Log: filepath.Join(dir, "log"),
		ended: make(chan struct{}), keep: o.Dir != "", root: o.Root}
	if err := s.start(o, who); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *Server) start(o Options, who *syscall.Credential) error {
	var err error
	if s.Port, err = freeport.Find(); err != nil {
		return err
	}
	s.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.Port)
	if err := s.makeData(o, who); err != nil {
		return err
	}
	if o.Prepare != nil {
		o.Prepare(s.Data)
	}
	args := []string{"-D", s.inside(s.Data), "-p", strconv.Itoa(s.Port), "-k", s.inside(s.Dir), "-c", "listen_addresses=127.0.0.1"}
	for k, v := range o.Settings {
		args = append(args, "-c", k+"="+v)
	}
	log, err := os.Create(s.Log)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(o.Postgres, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Chroot: s.root}
	cmd.Dir = elsewhere
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd, s.PID = cmd, cmd.Process.Pid
	go func() {
		cmd.Wait()
		close(s.ended)
	}()
	return s.await()
}

// inside is how the server sees a path below its folder.
func (s *Server) inside(path string) string {
	if s.root == "" {
		return path
	}
	return "/run" + strings.TrimPrefix(path, s.Dir)
}

// makeData makes the data directory.
func (s *Server) makeData(o Options, who *syscall.Credential) error {
	if o.Template == "" {
		return initialise(o.Initdb, s.inside(s.Data), s.root, who)
	}
	if out, err := exec.Command("cp", "-a", o.Template, s.Data).CombinedOutput(); err != nil {
		return fmt.Errorf("copying %s: %w\n%s", o.Template, err, out)
	}
	return nil
}

func initialise(program, data, root string, who *syscall.Credential) error {
	initdb := exec.Command(program, "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
	initdb.SysProcAttr = &syscall.SysProcAttr{Credential: who, Chroot: root}
	initdb.Dir = elsewhere
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	return nil
}

// Template makes a data directory to start servers from, at a path that is not there yet. It is of the user Owner.
func Template(initdb, path string) error {
	who, err := credential()
	if err != nil {
		return err
	}
	dir, err := makeDir(who)
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "data")
	if err := initialise(initdb, data, "", who); err != nil {
		return err
	}
	// The path may be on another file system.
	if out, err := exec.Command("cp", "-a", data, path).CombinedOutput(); err != nil {
		return fmt.Errorf("copying to %s: %w\n%s", path, err, out)
	}
	return nil
}

// await returns once the server takes connections.
func (s *Server) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.DefaultTimeout)
	defer cancel()
	for {
		c, err := pgx.Connect(ctx, s.URL)
		if err == nil {
			return c.Close(ctx)
		}
		select {
		case <-s.ended:
			text, _ := os.ReadFile(s.Log)
			return fmt.Errorf("the server did not start:\n%s", text)
		case <-ctx.Done():
			return fmt.Errorf("the server did not take connections within %v: %w", testkit.DefaultTimeout, err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the server, first by a signal, then by force, and removes its folder if it made it.
func (s *Server) Stop() error {
	if s.cmd != nil {
		s.cmd.Process.Signal(syscall.SIGINT)
		select {
		case <-s.ended:
		case <-time.After(stopTimeout):
			s.cmd.Process.Kill()
			<-s.ended
		}
	}
	if s.keep {
		return nil
	}
	return os.RemoveAll(s.Dir)
}

func makeDir(who *syscall.Credential) (string, error) {
	dir, err := os.MkdirTemp("/var/tmp", "pg-")
	if err != nil {
		return "", err
	}
	if err := os.Chown(dir, int(who.Uid), int(who.Gid)); err != nil {
		return "", errors.Join(err, os.Remove(dir))
	}
	return dir, nil
}

func credential() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("starting a server as another user needs root")
	}
	u, err := user.Lookup(Owner)
	if err != nil {
		return nil, fmt.Errorf("the user of the server's package: %w", err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
